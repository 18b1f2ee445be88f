package checkpoint

import (
	"encoding/base64"
	"strings"
)

// formatUUID writes an id as Kafka does: base64url without padding, 22 characters.
func formatUUID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parseUUID(text string) (id [16]byte, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(b) != len(id) {
		return id, false
	}
	return [16]byte(b), true
}
