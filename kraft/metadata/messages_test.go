package metadata

import (
	_ "embed"
	"testing"

	"gregor/protocol/wire/wiretest"
)

//go:embed testdata/messages.tsv
var goldenMessages string

func TestMessagesAreThoseOfKafka(t *testing.T) { wiretest.All(t, goldenMessages, allMessages) }

func FuzzMessages(f *testing.F) { wiretest.Fuzz(f, goldenMessages, allMessages) }
