package quorum

import (
	"fmt"
	"strings"
)

// proposeCommand: `propose 1 a b c` appends topics on a node that leads.
func (in *interaction) proposeCommand() string {
	var names []string
	for _, a := range in.d.CmdArgs[1:] {
		names = append(names, a.Key)
	}
	if count := in.arg("count", 0); count > 0 {
		names = nil
		for i := range count {
			names = append(names, fmt.Sprintf("%s%d", strings.Repeat("t", int(in.arg("size", 1))), i))
		}
	}
	base, last, err := in.propose(in.node(), names...)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return fmt.Sprintf("offsets %d to %d\n", base, last)
}
