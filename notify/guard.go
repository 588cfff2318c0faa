package notify

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// ErrForbiddenAddress is in the tree of every error of [CheckAddress].
var ErrForbiddenAddress = errors.New("address is never called")

// metadataAddresses are the addresses at which clouds serve instance credentials
// and which the classes of netip don't cover: AWS over IPv6, Google over IPv6,
// Alibaba, and the Azure wire server.
func metadataAddress(a netip.Addr) bool {
	switch a {
	case netip.AddrFrom16([16]byte{0xfd, 0x00, 0x0e, 0xc2, 14: 0x02, 15: 0x54}),
		netip.AddrFrom16([16]byte{0xfd, 0x20, 0x00, 0xce, 14: 0x02, 15: 0x54}),
		netip.AddrFrom4([4]byte{100, 100, 100, 200}),
		netip.AddrFrom4([4]byte{168, 63, 129, 16}):
		return true
	default:
		return false
	}
}

// CheckAddress refuses the addresses that no agent server can have and that an
// attacker would want to be called: link-local (with the metadata service
// 169.254.169.254), other metadata addresses, unspecified, multicast and
// broadcast, also where an IPv6 address only embeds them. Loopback and private
// addresses are fine: that is where agent servers live.
func CheckAddress(addr netip.Addr) error {
	if !addr.IsValid() {
		return fmt.Errorf("checking an address: %w: not an IP address", ErrForbiddenAddress)
	}
	a := addr.WithZone("").Unmap()
	for _, c := range []netip.Addr{a, embedded(a)} {
		if !c.IsValid() {
			continue
		}
		if c.IsUnspecified() || c.IsMulticast() || c.IsLinkLocalUnicast() || metadataAddress(c) ||
			c == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
			return fmt.Errorf("checking %s: %w", addr, ErrForbiddenAddress)
		}
	}

	return nil
}

// embedded returns the IPv4 address inside an IPv4-compatible, NAT64 or 6to4
// address, and the zero Addr for all others.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() || a == netip.IPv6Loopback() {
		return netip.Addr{}
	}
	b := a.As16()
	switch {
	case [12]byte(b[:12]) == [12]byte{}, // ::a.b.c.d
		[12]byte(b[:12]) == [12]byte{0x00, 0x64, 0xff, 0x9b}: // 64:ff9b::/96
		return netip.AddrFrom4([4]byte(b[12:]))
	case b[0] == 0x20 && b[1] == 0x02: // 2002:a.b.c.d::/48
		return netip.AddrFrom4([4]byte(b[2:6]))
	default:
		return netip.Addr{}
	}
}

// guardDial is a net.Dialer.ControlContext: it sees the address that was
// resolved, right before the connection is made, so that no later answer of the
// DNS gets around it.
func (s AgentServer) guardDial(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dialing: %w: not an IP address", ErrForbiddenAddress)
	}
	if err := CheckAddress(ap.Addr()); err != nil || s.Forbidden == nil || !s.Forbidden(ap) {
		return err
	}

	return fmt.Errorf("dialing %s: %w", ap, ErrForbiddenAddress)
}
