"""A schedule run on real ranks: the messages of each step at once, then what arrived is added or is in its place.

Where the host adds, a long message travels in pieces, so that one is added, still in the cache, while the next arrives.
"""

from commbench.schedules.plan import Add, Copy, Exchange, Message, Run, plan
from commbench.schedules.schedule import Schedule


def prepare(group, schedule: Schedule, call, send, recv):
    """A function without arguments that executes `schedule` once on this rank of `group`.

    `call` is the operation's Call; `send` and `recv` are flat arrays as the library's own call takes them. A root other
    than 0 renumbers the ranks; `avg` is a sum that is divided at the end.
    """
    n, root = schedule.n_ranks, max(call.root, 0)
    actions = plan(schedule, (group.rank - root) % n, call.count, call.in_place)
    buffers = {"send": send, "recv": recv}
    for name, size in scratch_elements(actions).items():
        buffers[name] = group.like(recv, size)

    def view(run: Run):
        return buffers[run.buffer][run.begin : run.end]

    def local(action: Copy | Add):
        if isinstance(action, Copy):
            return group.copy(view(action.to), view(action.source))
        return group.accumulate(view(action.into), view(action.part), call.redop)

    def exchange(step: Exchange):
        sends, receives = (
            [piece for message in messages for piece in _pieces(message, group.piece_bytes // recv.itemsize)]
            for messages in (step.sends, step.receives)
        )
        then = [_in_order([local(action) for action in message.then]) for message in receives]
        outgoing = [((message.peer + root) % n, view(message.run)) for message in sends]
        incoming = [((message.peer + root) % n, view(message.run)) for message in receives]
        if not any(message.then for message in receives):
            return group.exchange(outgoing, incoming)
        if _overwrites(step):
            return _in_order([group.exchange(outgoing, incoming), *then])
        return group.exchange(outgoing, incoming, then)

    steps = [exchange(action) if isinstance(action, Exchange) else local(action) for action in actions]
    return _in_order(steps + ([group.divide(recv, n)] if call.redop == "avg" else []))


def _in_order(calls):
    """One call for several."""
    if len(calls) == 1:
        return calls[0]

    def run():
        for one in calls:
            one()

    return run


def _overwrites(step: Exchange) -> bool:
    """Whether what follows a message would write to memory that is sent in the same step, perhaps not yet gone."""
    written = [one.to if isinstance(one, Copy) else one.into for message in step.receives for one in message.then]
    sent = [message.run for message in step.sends]
    return any(w.buffer == s.buffer and w.begin < s.end and s.begin < w.end for w in written for s in sent)


def _pieces(message: Message, elements: int) -> list[Message]:
    """A message that is added, in pieces of at most `elements`; both ends cut alike."""
    size = message.run.end - message.run.begin
    if not message.reduce or not elements or size <= elements:
        return [message]
    cuts = [(begin, min(begin + elements, size)) for begin in range(0, size, elements)]
    runs = [_cut(message.run, *cut) for cut in cuts]
    if len(message.then) == 1 and isinstance(message.then[0], Add):  # each piece is added by itself
        into, part = message.then[0].into, message.then[0].part
        then = [(Add(_cut(into, *cut), _cut(part, *cut)),) for cut in cuts]
    else:
        then = [()] * (len(cuts) - 1) + [message.then]
    return [Message(message.peer, run, True, after) for run, after in zip(runs, then)]


def _cut(run: Run, begin: int, end: int) -> Run:
    return Run(run.buffer, run.begin + begin, run.begin + end)


def scratch_elements(actions) -> dict[str, int]:
    """Elements of memory beyond the operation's own that `actions` use, by buffer."""
    runs = []
    for action in actions:
        messages = action.sends + action.receives if isinstance(action, Exchange) else ()
        runs += [message.run for message in messages]
        for one in [action] if isinstance(action, Copy) else [one for message in messages for one in message.then]:
            runs += [one.to, one.source] if isinstance(one, Copy) else [one.into, one.part]
    sizes = {}
    for run in runs:
        if run.buffer not in ("send", "recv"):
            sizes[run.buffer] = max(sizes.get(run.buffer, 0), run.end)
    return sizes
