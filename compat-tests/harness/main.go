package harness

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
)

var ends struct {
	sync.Mutex
	list []func()
}

// atExit registers what must end with the test process; the last registered ends first.
func atExit(f func()) {
	ends.Lock()
	defer ends.Unlock()
	ends.list = append(ends.list, f)
}

func endAll() {
	ends.Lock()
	list := ends.list
	ends.list = nil
	ends.Unlock()
	for _, l := range slices.Backward(list) {
		l()
	}
}

// Main is what a package's TestMain calls: it runs the tests and ends the nodes and programs that they share.
func Main(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		endAll()
		os.Exit(1)
	}()
	code := m.Run()
	endAll()
	os.Exit(code)
}
