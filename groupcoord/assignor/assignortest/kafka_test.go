package assignortest_test

import (
	"os"
	"testing"

	"gregor/groupcoord/assignor/assignortest"
)

// The file is written by compat-tests/assignors, which also asks Kafka again.
func TestAssignmentsAreThoseThatKafkaGave(t *testing.T) {
	text, err := os.ReadFile("testdata/kafka.txt")
	if err != nil {
		t.Fatal(err)
	}
	goldens, err := assignortest.ParseGoldens(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(goldens) < 100 {
		t.Fatalf("only %d goldens", len(goldens))
	}
	for _, g := range goldens {
		got, err := g.Question.Answer()
		if err != nil {
			t.Fatal(err)
		}
		if got != g.Answer {
			t.Errorf("question:\n%sgot:\n%swant:\n%s", g.Question, got, g.Answer)
		}
	}
}
