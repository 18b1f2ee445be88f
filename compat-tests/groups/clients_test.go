package groups

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"gregor/compat-tests/harness"
)

// sessionTimeout of the members; the least that Kafka allows is 6 s.
const sessionTimeout = 8 * time.Second

// roller is a running member of a group.
type roller interface {
	// leave ends the member as a program does that is told to.
	leave()
	// kill ends it without a word to the broker.
	kill()
	// pause holds it still; resume lets it go on.
	pause()
	resume()
}

// place is where a member runs.
type place struct {
	t     *testing.T
	addr  string
	group string
	topic string
	l     *ledger
}

// start makes a member of some client.
type start func(p *place, name string) roller

// goMember is what the members in this process share.
type goMember struct {
	name   string
	l      *ledger
	net    *network
	cancel context.CancelFunc
	done   chan struct{}
	close  func()
}

func (m *goMember) leave() {
	m.cancel()
	<-m.done
	m.close()
	m.l.dead(m.name)
}

func (m *goMember) kill() {
	m.l.dead(m.name)
	m.net.cut()
	m.cancel()
	go m.close()
}

func (m *goMember) pause() {
	m.net.hold()
	m.l.dead(m.name)
}

func (m *goMember) resume() { m.net.letGo() }

func newGoMember(p *place, name string) (*goMember, context.Context) {
	ctx, cancel := context.WithCancel(context.Background())
	return &goMember{name: name, l: p.l, net: &network{}, cancel: cancel, done: make(chan struct{}), close: func() {}}, ctx
}

// franz makes members of franz-go: they commit what they have processed.
func franz(more ...kgo.Opt) start {
	return func(p *place, name string) roller {
		m, ctx := newGoMember(p, name)
		own := func(cl *kgo.Client, parts map[string][]int32) {
			_, generation := cl.GroupMetadata()
			p.l.assign(name, generation, parts[p.topic])
		}
		opts := append([]kgo.Opt{
			kgo.SeedBrokers(p.addr), kgo.ClientID(name), kgo.ConsumerGroup(p.group), kgo.ConsumeTopics(p.topic), kgo.Dialer(m.net.dial),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(time.Second),
			kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(500 * time.Millisecond), kgo.Balancers(kgo.RangeBalancer()),
			kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, parts map[string][]int32) { own(cl, parts) }),
			kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { p.l.release(name, parts[p.topic]) }),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { p.l.release(name, parts[p.topic]) }),
		}, more...)
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			p.t.Fatal(err)
		}
		m.close = cl.CloseAllowingRebalance
		go func() {
			defer close(m.done)
			for ctx.Err() == nil {
				f := cl.PollRecords(ctx, 500)
				f.EachRecord(func(r *kgo.Record) { p.l.process(string(r.Value)) })
				if !f.Empty() {
					commitCtx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					_ = cl.CommitRecords(commitCtx, f.Records()...)
					cancel()
				}
				cl.AllowRebalance()
			}
		}()
		return m
	}
}

// saramaDialer gives sarama the member's network.
type saramaDialer struct{ n *network }

// Dial implements proxy.Dialer.
func (d saramaDialer) Dial(kind, addr string) (net.Conn, error) {
	return d.n.dial(context.Background(), kind, addr)
}

// saramaHandler implements sarama.ConsumerGroupHandler.
type saramaHandler struct {
	m     *goMember
	topic string
}

func (h *saramaHandler) Setup(s sarama.ConsumerGroupSession) error {
	h.m.l.assign(h.m.name, s.GenerationID(), s.Claims()[h.topic])
	return nil
}

func (h *saramaHandler) Cleanup(s sarama.ConsumerGroupSession) error {
	h.m.l.release(h.m.name, s.Claims()[h.topic])
	return nil
}

func (h *saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case r, ok := <-c.Messages():
			if !ok {
				return nil
			}
			h.m.l.process(string(r.Value))
			s.MarkMessage(r, "")
		case <-s.Context().Done():
			return nil
		}
	}
}

func saramaMember(p *place, name string) roller {
	m, ctx := newGoMember(p, name)
	c := sarama.NewConfig()
	c.Version, c.ClientID = sarama.V3_6_0_0, name
	c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, saramaDialer{m.net}
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = 300 * time.Millisecond
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = sessionTimeout, time.Second
	g, err := sarama.NewConsumerGroup([]string{p.addr}, p.group, c)
	if err != nil {
		p.t.Fatal(err)
	}
	m.close = func() { _ = g.Close() }
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			_ = g.Consume(ctx, []string{p.topic}, &saramaHandler{m: m, topic: p.topic})
		}
	}()
	return m
}

// segmentio makes members of kafka-go.
func segmentio(p *place, name string) roller {
	m, ctx := newGoMember(p, name)
	dialer := &kafka.Dialer{ClientID: name, Timeout: 10 * time.Second, DialFunc: m.net.dial}
	g, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: p.group, Brokers: []string{p.addr}, Topics: []string{p.topic}, Dialer: dialer, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: time.Second, SessionTimeout: sessionTimeout, RebalanceTimeout: 15 * time.Second, JoinGroupBackoff: 500 * time.Millisecond,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	m.close = func() { _ = g.Close() }
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			gen, err := g.Next(ctx)
			if err != nil {
				continue
			}
			var parts []int32
			for _, a := range gen.Assignments[p.topic] {
				parts = append(parts, int32(a.ID))
			}
			p.l.assign(name, gen.ID, parts)
			var working sync.WaitGroup
			for _, a := range gen.Assignments[p.topic] {
				working.Add(1)
				gen.Start(func(genCtx context.Context) {
					defer working.Done()
					readPartition(genCtx, p, gen, dialer, a)
				})
			}
			gen.Start(func(genCtx context.Context) {
				<-genCtx.Done()
				working.Wait()
				p.l.release(name, parts)
			})
		}
	}()
	return m
}

func readPartition(ctx context.Context, p *place, gen *kafka.Generation, dialer *kafka.Dialer, a kafka.PartitionAssignment) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{p.addr}, Topic: p.topic, Partition: a.ID, Dialer: dialer, MaxWait: 300 * time.Millisecond})
	defer func() { _ = r.Close() }()
	if err := r.SetOffset(a.Offset); err != nil {
		return
	}
	for {
		msg, err := r.ReadMessage(ctx)
		if err != nil {
			return
		}
		p.l.process(string(msg.Value))
		if msg.Offset%10 == 9 {
			if err := gen.CommitOffsets(map[string]map[int]int64{p.topic: {a.ID: msg.Offset + 1}}); err != nil {
				return
			}
		}
	}
}

// program is a member that is a process and prints each record on a line.
type program struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (m *program) leave() {
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.done:
	case <-time.After(20 * time.Second):
		m.kill()
	}
}

func (m *program) kill() {
	_ = m.cmd.Process.Kill()
	<-m.done
}

func (m *program) pause()  { _ = m.cmd.Process.Signal(syscall.SIGSTOP) }
func (m *program) resume() { _ = m.cmd.Process.Signal(syscall.SIGCONT) }

func runProgram(p *place, name string, args ...string) roller {
	return runCommand(p, exec.Command(name, args...))
}

func runCommand(p *place, cmd *exec.Cmd) roller {
	m := &program{cmd: cmd, done: make(chan struct{})}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	var complaints bytes.Buffer
	m.cmd.Stderr = &complaints
	if err := m.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if p.t.Failed() {
			<-m.done
			p.t.Logf("%s: %v\n%s", m.cmd.Args, m.cmd.ProcessState, complaints.String())
		}
	})
	p.t.Cleanup(func() { _ = m.cmd.Process.Kill() })
	go func() {
		defer close(m.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.l.process(lines.Text())
		}
		_ = m.cmd.Wait()
	}()
	return m
}

// kcat makes members of librdkafka.
func kcat(more ...string) start {
	return func(p *place, _ string) roller {
		args := append([]string{"-b", p.addr, "-q", "-u", "-f", "%s\n", "-X", "auto.commit.interval.ms=500", "-X", "auto.offset.reset=earliest"}, more...)
		return runProgram(p, "kcat", append(args, "-G", p.group, p.topic)...)
	}
}

// javaConsole makes members of the Java client.
func javaConsole(properties ...string) start {
	return func(p *place, _ string) roller {
		libs, err := harness.KafkaLibs()
		if err != nil {
			p.t.Fatal(err)
		}
		args := []string{
			"-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128M", "-cp", filepath.Join(libs, "*"),
			"org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", p.addr, "--topic", p.topic, "--group", p.group, "--from-beginning",
		}
		for _, x := range append(properties, "auto.commit.interval.ms=500") {
			args = append(args, "--command-property", x)
		}
		return runProgram(p, "java", args...)
	}
}

// static makes each member with its name as the id of its instance.
func static(of func(instance string) start) start {
	return func(p *place, name string) roller { return of(name)(p, name) }
}

// aiokafkaMember is a member of aiokafka.
func aiokafkaMember(p *place, name string) roller {
	return runProgram(p, harness.AIOKafka(p.t), "testdata/aiokafka_member.py", p.addr, p.group, p.topic, name)
}

// kafkajsMember is a member of kafkajs.
func kafkajsMember(p *place, name string) roller {
	cmd := exec.Command("node", "testdata/kafkajs_member.js", p.addr, p.group, p.topic, name)
	cmd.Env = append(os.Environ(), "NODE_PATH="+harness.KafkaJS(p.t))
	return runCommand(p, cmd)
}
