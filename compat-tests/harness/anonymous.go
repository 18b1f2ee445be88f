package harness

import (
	"regexp"
	"strings"
)

// Anonymous is text without what tells one node from another: its addresses, directories and ports are replaced by words
// (BROKER, CONTROLLER, LOGDIR, DIR, PORT, CONTROLLERPORT). A port is replaced where it is a number of its own, never
// within another: 24288 is a port, and a part of the default 524288.
func (n *Node) Anonymous(text string) string {
	text = strings.NewReplacer(n.Addr, "BROKER", n.ControllerAddr, "CONTROLLER", n.LogDir, "LOGDIR", n.Dir, "DIR").Replace(text)
	for _, p := range []struct{ addr, word string }{{n.Addr, "PORT"}, {n.ControllerAddr, "CONTROLLERPORT"}} {
		text = regexp.MustCompile(`\b`+p.addr[strings.LastIndexByte(p.addr, ':')+1:]+`\b`).ReplaceAllString(text, p.word)
	}
	return text
}
