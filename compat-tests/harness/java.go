package harness

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// JavaProgram is a program of the directory java that answers questions with the help of Kafka's jars.
type JavaProgram struct {
	in  io.WriteCloser
	out *bufio.Reader
	log logBuffer
}

// StartJava starts a program of the directory java. It ends with the test.
func StartJava(tb testing.TB, source string) *JavaProgram {
	tb.Helper()
	NeedKafka(tb)
	jars, err := libs()
	if err != nil {
		tb.Fatal(err)
	}
	args := append(javaOptions("ERROR"), "-Xmx256M", "-cp", filepath.Join(jars, "*"), filepath.Join(moduleDir(), "java", source))
	cmd := exec.Command("java", args...)
	p := &JavaProgram{}
	cmd.Stderr = &p.log
	if p.in, err = cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = p.in.Close()
		_, _ = io.Copy(io.Discard, p.out)
		_ = cmd.Wait()
	})
	return p
}

// Ask sends a question and returns the answer: both end with a line "end".
func (p *JavaProgram) Ask(tb testing.TB, question string) string {
	tb.Helper()
	if _, err := io.WriteString(p.in, question); err != nil {
		tb.Fatalf("the Java program ended: %v\n%s", err, p.log.String())
	}
	var answer strings.Builder
	for {
		line, err := p.out.ReadString('\n')
		answer.WriteString(line)
		switch {
		case err != nil:
			tb.Fatalf("the Java program ended: %v\n%s\nquestion:\n%s", err, p.log.String(), question)
		case line == "end\n":
			return answer.String()
		}
	}
}
