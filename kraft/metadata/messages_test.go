package metadata

import (
	"testing"

	"gregor/protocol/wire/wiretest"
)

func TestMessagesOfKafkaDecodeAndEncodeToTheSameBytes(t *testing.T) {
	wiretest.DecodeAndEncode(t, allMessages)
}

func TestMessagesPrintTheJSONOfKafka(t *testing.T) { wiretest.PrintJSON(t, allMessages) }

func TestNewMessagesHaveTheDefaultsOfKafka(t *testing.T) { wiretest.Defaults(t, allMessages) }

func TestEveryTruncationOfAMessageIsMalformed(t *testing.T) { wiretest.Truncations(t, allMessages) }

func TestVersionsOutsideTheRangeAreErrors(t *testing.T) { wiretest.VersionsOutside(t, allMessages) }

func FuzzMessages(f *testing.F) { wiretest.Fuzz(f, allMessages) }
