# The packet counters of the tests in virtual machines, for source: in a namespace, the echo requests, which
# the policies of the tests allow, and the datagrams to port 9, which they deny.

# Usage: count_packets NAMESPACE HOOK: makes the counters. HOOK is output or input.
count_packets() {
  ip netns exec "$1" nft -f - <<END
table inet seen {
  counter allowed { }
  counter denied { }
  chain packets {
    type filter hook $2 priority 0;
    icmp type echo-request counter name allowed
    udp dport 9 counter name denied
  }
}
END
}

# Usage: count NAMESPACE NAME: prints the number of packets of the counter allowed or denied.
count() { ip netns exec "$1" nft list counter inet seen "$2" | sed -n 's/.*packets \([0-9]*\) .*/\1/p'; }
