package harness

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Result is what a program did.
type Result struct {
	Status         int
	Stdout, Stderr string
}

// toolTimeout bounds one run of a tool.
const toolTimeout = 120 * time.Second

// toolServer is the JVM in which Kafka's tools run: java/ToolServer.java.
type toolServer struct {
	mu      sync.Mutex
	in      io.WriteCloser
	lastID  int
	waiting map[string]chan Result
	log     logBuffer
	ended   chan struct{}
}

var tools = sync.OnceValues(func() (*toolServer, error) {
	jars, err := libs()
	if err != nil {
		return nil, err
	}
	source := filepath.Join(moduleDir(), "java", "ToolServer.java")
	args := append(javaOptions("ERROR"), "-Xmx512M", "-cp", filepath.Join(jars, "*"), source)
	cmd := exec.Command("java", args...)
	s := &toolServer{waiting: map[string]chan Result{}, ended: make(chan struct{})}
	cmd.Stderr = &s.log
	if s.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	if ready, err := lines.ReadString('\n'); err != nil || ready != "ready\n" {
		return nil, fmt.Errorf("the JVM for Kafka's tools does not start: %q %w\n%s", ready, err, s.log.String())
	}
	go func() {
		s.readAnswers(lines)
		_ = cmd.Wait()
		close(s.ended)
	}()
	atExit(func() {
		_ = s.in.Close()
		<-s.ended
	})
	return s, nil
})

func (s *toolServer) readAnswers(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(parts) != 4 {
			continue
		}
		status, _ := strconv.Atoi(parts[1])
		stdout, _ := base64.StdEncoding.DecodeString(parts[2])
		stderr, _ := base64.StdEncoding.DecodeString(parts[3])
		s.mu.Lock()
		answer := s.waiting[parts[0]]
		delete(s.waiting, parts[0])
		s.mu.Unlock()
		if answer != nil {
			answer <- Result{Status: status, Stdout: string(stdout), Stderr: string(stderr)}
		}
	}
}

func (s *toolServer) call(class, stdin string, args []string) (<-chan Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	id := strconv.Itoa(s.lastID)
	answer := make(chan Result, 1)
	s.waiting[id] = answer
	input := "-"
	if stdin != "" {
		input = base64.StdEncoding.EncodeToString([]byte(stdin))
	}
	parts := []string{id, class, input}
	for _, a := range args {
		parts = append(parts, base64.StdEncoding.EncodeToString([]byte(a)))
	}
	_, err := io.WriteString(s.in, strings.Join(parts, "\t")+"\n")
	return answer, err
}

// StartTool starts a main class of Kafka and returns where its result comes.
func StartTool(tb testing.TB, class, stdin string, args ...string) <-chan Result {
	tb.Helper()
	NeedKafka(tb)
	s, err := tools()
	if err != nil {
		tb.Fatal(err)
	}
	answer, err := s.call(class, stdin, args)
	if err != nil {
		tb.Fatalf("%s: %v\n%s", class, err, s.log.String())
	}
	return answer
}

// RunTool runs a main class of Kafka to its end.
func RunTool(tb testing.TB, class, stdin string, args ...string) Result {
	tb.Helper()
	select {
	case r := <-StartTool(tb, class, stdin, args...):
		return r
	case <-time.After(toolTimeout):
		tb.Fatalf("%s %q did not end within %v", class, args, toolTimeout)
		return Result{}
	}
}
