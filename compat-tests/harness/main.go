package harness

import (
	"os"
	"os/signal"
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
	for i := len(list) - 1; i >= 0; i-- {
		list[i]()
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
