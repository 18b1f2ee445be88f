package protocol

import (
	"strings"
	"unicode/utf8"
)

// maxTopicNameLength is the longest topic name Kafka takes: a partition's directory name must fit into 255 bytes.
const maxTopicNameLength = 249

// TopicNameProblem says why no topic can have a name, in Kafka's words; "" when one can.
func TopicNameProblem(name string) string {
	switch {
	case name == "":
		return "the empty string is not allowed"
	case name == "." || name == "..":
		return "'" + name + "' is not allowed"
	case utf8.RuneCountInString(name) > maxTopicNameLength:
		return "the length of '" + name + "' is longer than the max allowed length 249"
	case strings.ContainsFunc(name, func(r rune) bool { return !isTopicNameRune(r) }):
		return "'" + name + "' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
	default:
		return ""
	}
}

func isTopicNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}
