package harness

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Kind is whose broker a node is.
type Kind string

// The two brokers that are compared.
const (
	Gregor Kind = "gregor"
	Kafka  Kind = "kafka"
)

// ClusterID is the cluster id of every node that the harness formats.
const ClusterID = "AAAAAAAAQACAAAAAAAAAAQ"

// startTimeout is how long a node may take to answer; a JVM on a busy machine needs most of it.
const startTimeout = 90 * time.Second

// stopTimeout is how long a node may take to stop on SIGTERM.
const stopTimeout = 60 * time.Second

// Node is a broker under test: a process, its directory and its ports.
type Node struct {
	Kind Kind
	// Addr and ControllerAddr are host:port of the listeners for clients and for controllers.
	Addr, ControllerAddr string
	// Dir holds server.properties; LogDir is the log directory below it (or where Options put it).
	Dir, LogDir string

	config string
	log    logBuffer

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

// Options are what differs from the usual node.
type Options struct {
	// Properties are further keys; an empty value takes one of the usual keys away.
	Properties Properties
	// LogDir is a directory that exists already; usually a fresh one is made.
	LogDir string
}

// logBuffer collects the output of a process.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns all output so far.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// New makes a node without starting it: its directory, its server.properties and, for Kafka, its formatted log
// directory (Gregor formats by itself). It is stopped and removed at the end of the test.
func New(tb testing.TB, kind Kind, o Options) *Node {
	tb.Helper()
	n, err := newNode(tb, kind, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of %s (the end):\n%s", kind, n.LogTail(60))
		}
		n.discard()
	})
	return n
}

// Start makes a node and starts it.
func Start(tb testing.TB, kind Kind, o Options) *Node {
	tb.Helper()
	n := New(tb, kind, o)
	n.Start(tb)
	return n
}

func newNode(tb testing.TB, kind Kind, o Options) (*Node, error) {
	tb.Helper()
	if kind == Kafka {
		NeedKafka(tb)
	}
	dir, err := os.MkdirTemp("", "gregor-compat-"+string(kind)) //nolint:usetesting // a shared node outlives the test that starts it
	if err != nil {
		return nil, err
	}
	ports := Ports(tb, 2)
	n := &Node{Kind: kind, Dir: dir, LogDir: o.LogDir, Addr: fmt.Sprintf("127.0.0.1:%d", ports[0]), ControllerAddr: fmt.Sprintf("127.0.0.1:%d", ports[1])}
	if n.LogDir == "" {
		n.LogDir = filepath.Join(dir, "data")
	}
	p := nodeProperties(ports[0], ports[1], n.LogDir).with(o.Properties)
	if n.config, err = p.write(dir); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(n.LogDir, "meta.properties")); kind == Kafka && errors.Is(err, os.ErrNotExist) {
		r := RunTool(tb, "kafka.tools.StorageTool", "", "format", "-t", ClusterID, "-c", n.config)
		if r.Status != 0 {
			return nil, fmt.Errorf("kafka-storage format: %s%s", r.Stdout, r.Stderr)
		}
	}
	return n, nil
}

// ConfigFile is the path of the node's server.properties.
func (n *Node) ConfigFile() string { return n.config }

// Log is all output of the node's processes so far.
func (n *Node) Log() string { return n.log.String() }

// LogTail is the end of the log.
func (n *Node) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(n.Log(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// command is the process that serves.
func (n *Node) command() (*exec.Cmd, error) {
	if n.Kind == Kafka {
		return kafkaCommand(n.config)
	}
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "start", n.config)
	cmd.Env = append(os.Environ(), "CLUSTER_ID="+ClusterID)
	return cmd, nil
}

// Launch starts the process and does not wait until it serves.
func (n *Node) Launch(tb testing.TB) {
	tb.Helper()
	cmd, err := n.command()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Dir = n.Dir
	cmd.Stdout, cmd.Stderr = &n.log, &n.log
	exited := make(chan struct{})
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	n.mu.Lock()
	n.cmd, n.exited = cmd, exited
	n.mu.Unlock()
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
}

// Start starts the process and waits until it accepts connections.
func (n *Node) Start(tb testing.TB) {
	tb.Helper()
	n.Launch(tb)
	n.WaitServing(tb)
}

// WaitServing waits until the node accepts connections from clients and is a part of its cluster.
func (n *Node) WaitServing(tb testing.TB) {
	tb.Helper()
	serves := func() bool {
		c, err := net.DialTimeout("tcp", n.Addr, time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	}
	if !poll(startTimeout, func() bool { return n.hasExited() || serves() }) || n.hasExited() {
		tb.Fatalf("%s does not serve:\n%s", n.Kind, n.LogTail(60))
	}
}

func (n *Node) process() (*exec.Cmd, chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cmd, n.exited
}

func (n *Node) hasExited() bool {
	_, exited := n.process()
	select {
	case <-exited:
		return true
	default:
		return false
	}
}

// Alive tells whether the process runs.
func (n *Node) Alive() bool {
	cmd, _ := n.process()
	return cmd != nil && !n.hasExited()
}

// Pid is the process id.
func (n *Node) Pid() int {
	cmd, _ := n.process()
	return cmd.Process.Pid
}

// Wait waits for the process to end by itself and returns its exit status (-1 after a signal).
func (n *Node) Wait(tb testing.TB, timeout time.Duration) int {
	tb.Helper()
	cmd, exited := n.process()
	select {
	case <-exited:
	case <-time.After(timeout):
		tb.Fatalf("%s did not end within %v:\n%s", n.Kind, timeout, n.LogTail(60))
	}
	return cmd.ProcessState.ExitCode()
}

// Stop ends the process by SIGTERM and returns its exit status.
func (n *Node) Stop(tb testing.TB) int {
	tb.Helper()
	cmd, _ := n.process()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	return n.Wait(tb, stopTimeout)
}

// Kill ends the process at once, as a crash does.
func (n *Node) Kill(tb testing.TB) {
	tb.Helper()
	cmd, _ := n.process()
	_ = cmd.Process.Kill()
	n.Wait(tb, stopTimeout)
}

// discard kills what runs and removes the directory.
func (n *Node) discard() {
	if cmd, exited := n.process(); cmd != nil {
		_ = cmd.Process.Kill()
		<-exited
	}
	_ = os.RemoveAll(n.Dir)
}

// poll calls ok until it holds or the time is over.
func poll(timeout time.Duration, ok func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(timeout)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			return ok()
		}
	}
	return true
}

// Within tells whether ok holds within the time.
func Within(timeout time.Duration, ok func() bool) bool { return poll(timeout, ok) }

// Eventually fails the test unless ok holds within the time.
func Eventually(tb testing.TB, timeout time.Duration, what string, ok func() bool) {
	tb.Helper()
	if !poll(timeout, ok) {
		tb.Fatalf("not within %v: %s", timeout, what)
	}
}

// Adopt makes a node of another kind on the server.properties and the log directory of a node that has stopped.
func Adopt(tb testing.TB, kind Kind, old *Node) *Node {
	tb.Helper()
	n := &Node{Kind: kind, Addr: old.Addr, ControllerAddr: old.ControllerAddr, Dir: old.Dir, LogDir: old.LogDir, config: old.config}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of %s (the end):\n%s", kind, n.LogTail(60))
		}
		n.discard()
	})
	return n
}
