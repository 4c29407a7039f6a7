"""NCCL's topology dump (NCCL_TOPO_DUMP_FILE): GPUs, their NVLinks, network cards.

XML from strangers: expat with every document type, entity and processing instruction refused, and bounds on depth and
number of elements. A cut file gives what stands before the cut.
"""

from collections.abc import Iterator
from xml.parsers import expat

from commbench.importers.cells import whole
from commbench.importers.found import Given, Test
from commbench.importers.samples import sample
from commbench.importers.text import Lines

_DEEPEST, _MOST = 64, 200_000


class _Refused(Exception):
    pass


WORDS = ("<",)


def starts(text: str) -> bool:
    head = text.lstrip()[:200]
    return head.startswith(("<system", "<?xml", "<!DOCTYPE", "<!ENTITY", "<graphs"))


def read(lines: Lines, given: Given) -> Iterator[Test]:
    test, found, stack = None, {"gpus": [], "nets": [], "cpus": 0}, []
    parser = expat.ParserCreate()
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.StartElementHandler = lambda name, attributes: _element(name, attributes, stack, found)
    parser.EndElementHandler = lambda name: stack.pop()
    for name in (
        "StartDoctypeDeclHandler",
        "EntityDeclHandler",
        "UnparsedEntityDeclHandler",
        "ExternalEntityRefHandler",
    ):
        setattr(parser, name, _refuse)
    cut = ""
    for line in lines.section("nccl_xml"):
        test = test or Test("NCCL topology", line.number, unit="device")
        if cut or test.fault:
            lines.drop(line, "after XML that is at its end, damaged or refused")
            continue
        try:
            parser.Parse(f"{line.text}\n" if line.text.strip() or stack else "", False)
        except _Refused as refused:
            test.fault = (line.number, str(refused))
        except expat.ExpatError as error:
            if found["gpus"] and not stack:
                lines.drop(line, "after XML that is at its end, damaged or refused")
                cut = " "
                continue
            cut = f"line {line.number}: no well-formed XML ({expat.errors.messages[error.code]})"
    if test and not test.fault and not cut and stack:
        cut = f"ends inside <{stack[-1][0]}>"
    if test:
        yield _finished(test, found, cut.strip())


def _refuse(*_):
    raise _Refused("the XML declares a document type or an entity, which is refused")


def _element(name: str, attributes: dict, stack: list, found: dict) -> None:
    found["elements"] = found.get("elements", 0) + 1
    if len(stack) >= _DEEPEST or found["elements"] > _MOST:
        raise _Refused("the XML is too deep or too large to be a topology")
    above = dict(stack)
    stack.append((name, attributes))
    if name == "cpu":
        found["cpus"] += 1
    elif name == "gpu":
        pci = above.get("pci", {})
        found["gpus"].append(
            {"index": whole(attributes.get("dev", "")), "sm": attributes.get("sm", ""), "pci": pci.get("busid", ""),
             "numa": above.get("cpu", {}).get("numaid", ""), "links": 0, "link_speed": pci.get("link_speed", ""),
             "link_width": pci.get("link_width", "")}
        )  # fmt: skip
    elif name in ("nvlink", "xgmi") and found["gpus"] and "gpu" in above:
        found["gpus"][-1]["links"] += whole(attributes.get("count", "")) or 0
    elif name == "net":
        found["nets"].append(
            {"name": attributes.get("name", ""), "speed_Mbps": whole(attributes.get("speed", "")) or 0}
        )


def _finished(test: Test, found: dict, cut: str) -> Test:
    if test.fault:
        return test
    gpus, nets = found["gpus"], found["nets"]
    if not gpus and not nets:
        test.fault = (test.line, cut or "XML without a GPU or a network card of NCCL")
        return test
    for at, gpu in enumerate(gpus):
        told = {
            "nvlinks": gpu["links"] or None,
            "sm": whole(gpu["sm"]),
            "pci": gpu["pci"],
            "pcie_speed": gpu["link_speed"],
        }
        told["pcie_width"] = whole(gpu["link_width"])
        index = at if gpu["index"] is None else gpu["index"]
        test.add(_device("gpu", f"GPU{index}", at, told, gpu["numa"]))
    for at, net in enumerate(nets):
        speed = {"speed_GBps": net["speed_Mbps"] / 8e3} if net["speed_Mbps"] else {"speed": "not told"}
        test.add(_device("nic", net["name"] or f"net {at}", at, speed, ""))
    counts = {gpu["links"] for gpu in gpus}
    test.facts = {"gpus": len(gpus), "nets": len(nets), "sm": sorted({gpu["sm"] for gpu in gpus})}
    test.facts["nvlinks_per_gpu"] = counts.pop() if len(counts) == 1 else sorted(counts)
    test.nodes = [
        {"host": "not named", "gpus": [_gpu(gpu) for gpu in gpus], "nics": [{"name": n["name"]} for n in nets]}
    ]
    test.rows, test.cut = len(test.samples), cut
    return test


def _gpu(gpu: dict) -> dict:
    return {"index": gpu["index"], "pci": gpu["pci"], "nvlink": {"links": gpu["links"]}}


def _device(kind: str, name: str, at: int, told: dict, numa: str):
    told = {key: value for key, value in told.items() if value not in (None, "")} or {"present": 1}
    params = {"kind": kind, "index": at} | ({"numa": numa} if numa else {})
    return sample(
        "topology",
        "nccl",
        kind="link",
        ranks=1,
        nodes=1,
        scope="intra",
        members=(),
        group=name,
        dtype="bytes",
        params=params,
        reported=told,
    )
