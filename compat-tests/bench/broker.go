package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"gregor/compat-tests/harness"
)

// kind is whose broker is measured.
type kind string

const (
	gregor kind = "gregor"
	kafka  kind = "kafka"
)

// Times within which a broker must serve and stop.
const (
	startTimeout = 5 * time.Minute // a JVM on a machine that is busy with others
	stopTimeout  = 2 * time.Minute
)

// launcher knows how to run both brokers.
type launcher struct {
	binary    string
	kafkaLibs string
}

func newLauncher(ctx context.Context, o options, dir string) (launcher, error) {
	var l launcher
	var err error
	if l.binary = o.gregor; l.binary == "" {
		l.binary = filepath.Join(dir, "gregor-binary")
		build := exec.CommandContext(ctx, "go", "build", "-o", l.binary, "./cmd/gregor")
		if build.Dir, err = sources(); err != nil {
			return l, err
		}
		if out, err := build.CombinedOutput(); err != nil {
			return l, fmt.Errorf("go build ./cmd/gregor: %w\n%s", err, out)
		}
	}
	if l.binary, err = filepath.Abs(l.binary); err != nil {
		return l, err
	}
	if l.kafkaLibs, err = harness.KafkaLibs(); err != nil && !o.noKafka {
		return l, err
	}
	return l, nil
}

// sources is the directory of Gregor's module: the parent of that of this one.
func sources() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("no source file known")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file))), nil
}

// dataDir is the log directory in a broker's directory.
const dataDir = "data"

// broker is a process with its directory.
type broker struct {
	kind   kind
	addr   string
	dir    string
	launch launcher
	config string
	// descriptors, if not 0, is the limit of open files to start with.
	descriptors int
	cmd         *exec.Cmd
	exited      chan struct{}
}

// prepare makes a broker's directory and configuration, and formats Kafka's log directory: Gregor formats an empty one
// by itself when it starts, and that time counts.
func (l launcher) prepare(ctx context.Context, k kind, dir string) (*broker, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	b := &broker{kind: k, addr: fmt.Sprintf("127.0.0.1:%d", ports[0]), dir: dir, launch: l, config: filepath.Join(dir, "server.properties")}
	if err := os.WriteFile(b.config, []byte(properties(ports[0], ports[1], filepath.Join(dir, dataDir))), 0o600); err != nil {
		return nil, err
	}
	if k == kafka {
		format := exec.CommandContext(ctx, "java", "-cp", filepath.Join(l.kafkaLibs, "*"), "kafka.tools.StorageTool", "format", "-t", harness.ClusterID, "-c", b.config)
		if out, err := format.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("kafka-storage format: %w\n%s", err, out)
		}
	}
	return b, nil
}

// properties are stock settings on one node, but for files of deleted topics, which are removed at once to keep the disk
// free.
func properties(port, controllerPort int, logDir string) string {
	return strings.Join([]string{
		"process.roles=broker,controller",
		"node.id=1",
		fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", controllerPort),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", port, controllerPort),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", port),
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"log.dirs=" + logDir,
		"offsets.topic.replication.factor=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1",
		"share.coordinator.state.topic.min.isr=1",
		"log.segment.delete.delay.ms=100",
		"group.initial.rebalance.delay.ms=0",
	}, "\n") + "\n"
}

func freePorts(n int) ([]int, error) {
	var ports []int
	var held []net.Listener // until all are found, so that none is found twice
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		held = append(held, l)
		a, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, errors.New("no TCP address")
		}
		ports = append(ports, a.Port)
	}
	return ports, nil
}

// brokerJVM are the options of Kafka's own kafka-server-start.sh.
var brokerJVM = []string{
	"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
}

// start runs the process and returns how long it took from the start of the process to its first Metadata answer that
// names the broker.
func (b *broker) start(ctx context.Context) (time.Duration, error) {
	if b.kind == kafka {
		args := append(append([]string{}, brokerJVM...), "-cp", filepath.Join(b.launch.kafkaLibs, "*"), "kafka.Kafka", b.config)
		b.cmd = exec.Command("java", args...)
	} else {
		b.cmd = exec.Command(b.launch.binary, "start", b.config)
		b.cmd.Env = append(os.Environ(), "CLUSTER_ID="+harness.ClusterID)
	}
	if b.descriptors > 0 {
		limited := exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, b.descriptors), "sh"}, b.cmd.Args...)...)
		limited.Env = b.cmd.Env
		b.cmd = limited
	}
	log, err := os.Create(filepath.Join(b.dir, "log"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	b.cmd.Dir, b.cmd.Stdout, b.cmd.Stderr = b.dir, log, log
	began := time.Now()
	if err := b.cmd.Start(); err != nil {
		return 0, err
	}
	b.exited = make(chan struct{})
	go func() {
		_ = b.cmd.Wait()
		close(b.exited)
	}()
	if err := b.awaitMetadata(ctx); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// awaitMetadata asks until an answer names a broker.
func (b *broker) awaitMetadata(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond / 2)
	defer tick.Stop()
	for {
		if b.knowsItself(ctx) {
			return nil
		}
		select {
		case <-tick.C:
		case <-b.exited:
			text, _ := os.ReadFile(filepath.Join(b.dir, "log"))
			return fmt.Errorf("%s ended: %v\n%s", b.kind, b.cmd.ProcessState, text)
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w", b.kind, ctx.Err())
		}
	}
}

func (b *broker) knowsItself(ctx context.Context) bool {
	c, err := dial(ctx, b.addr)
	if err != nil {
		return false
	}
	defer c.close()
	n, err := c.brokers()
	return err == nil && n > 0
}

// pid is the process id.
func (b *broker) pid() int { return b.cmd.Process.Pid }

// stop ends the process by SIGTERM.
func (b *broker) stop() error {
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-b.exited:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s does not stop", b.kind)
	}
}

// kill ends the process at once, if it runs.
func (b *broker) kill() {
	if b.exited == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	<-b.exited
}

// discard ends the process and removes its directory.
func (b *broker) discard() {
	b.kill()
	_ = os.RemoveAll(b.dir)
}
