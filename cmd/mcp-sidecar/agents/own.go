package agents

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
)

// isOwn tells whether to is the address of a listener. local tells whether an
// address is one of this machine: that is where a listener for all addresses is.
func isOwn(to netip.AddrPort, listeners []netip.AddrPort, local func(netip.Addr) bool) bool {
	ip := to.Addr().WithZone("").Unmap()
	for _, l := range listeners {
		own := l.Addr().WithZone("").Unmap()
		if l.Port() == to.Port() && (own == ip || own.IsUnspecified() && (ip.IsLoopback() || local(ip))) {
			return true
		}
	}
	return false
}

func localAddress(ip netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // rather refuse
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == ip {
			return true
		}
	}
	return false
}

// addresses returns those that a URL names without a resolver.
func addresses(u *url.URL) []netip.AddrPort {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil
	}
	if u.Hostname() == "localhost" {
		return []netip.AddrPort{
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(n)),
			netip.AddrPortFrom(netip.IPv6Loopback(), uint16(n)),
		}
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil
	}
	return []netip.AddrPort{netip.AddrPortFrom(ip, uint16(n))}
}
