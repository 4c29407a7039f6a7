"""An emulated cluster on one Linux machine: nodes as network namespaces, links of set rate and delay.

Two forms. *rate*: the kernel's HTB shapes each link; large messages are exact, small ones look too fast (a bucket lets
its first 150 kB through at once). *latency*: a switch of our own on TAP devices sets rate and one-way delay; it is
exact for small messages too, up to about 1.5 Gbit/s in sum.
"""
