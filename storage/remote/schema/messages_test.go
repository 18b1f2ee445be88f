package schema

import (
	_ "embed"
	"testing"

	"gregor/protocol/wire/wiretest"
)

//go:embed testdata/messages.tsv
var goldenMessages string

func TestMessagesOfKafkaDecodeAndEncodeToTheSameBytes(t *testing.T) {
	wiretest.DecodeAndEncode(t, goldenMessages, allMessages)
}

func TestMessagesPrintTheJSONOfKafka(t *testing.T) {
	wiretest.PrintJSON(t, goldenMessages, allMessages)
}

func TestNewMessagesHaveTheDefaultsOfKafka(t *testing.T) {
	wiretest.Defaults(t, goldenMessages, allMessages)
}

func TestEveryTruncationOfAMessageIsMalformed(t *testing.T) {
	wiretest.Truncations(t, goldenMessages, allMessages)
}

func TestVersionsOutsideTheRangeAreErrors(t *testing.T) { wiretest.VersionsOutside(t, allMessages) }

func FuzzMessages(f *testing.F) { wiretest.Fuzz(f, goldenMessages, allMessages) }
