package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports returns n free ports of the loopback address. They lie below the range from which systems take the ports of
// outgoing connections, so that none is taken between this call and the start of a server. They are odd: no other number in
// what a broker says (a default, a size) is then likely to be a port's, see [Node.Anonymous].
func Ports(tb testing.TB, n int) []int {
	tb.Helper()
	ports := make([]int, 0, n)
	var held []net.Listener // until all are found, so that none is found twice
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for range 1000 {
		p := 12001 + 2*rand.IntN(10000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			continue
		}
		held = append(held, l)
		if ports = append(ports, p); len(ports) == n {
			return ports
		}
	}
	tb.Fatal("no free ports")
	return nil
}
