package quorum

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// interaction runs the commands of a script against a cluster; each command has a file of its own.
type interaction struct {
	*cluster
	t *testing.T
	d *datadriven.TestData
}

var interactionCommands = map[string]func(*interaction) string{
	"add-nodes": (*interaction).addNodes, "add-observer": (*interaction).addObserver, "add-voter": (*interaction).addVoter,
	"campaign": (*interaction).campaignCommand, "clean": (*interaction).clean, "crash": (*interaction).crashCommand, "crash-in": (*interaction).crashInCommand,
	"deliver": (*interaction).deliverCommand, "drop": (*interaction).drop, "events": (*interaction).eventsCommand,
	"fetch": (*interaction).fetchCommand, "heal": (*interaction).heal, "log": (*interaction).logCommand,
	"partition": (*interaction).partition, "propose": (*interaction).proposeCommand, "queue": (*interaction).queueCommand,
	"remove-voter": (*interaction).removeVoter, "resign": (*interaction).resign, "restart": (*interaction).restart,
	"snapshot": (*interaction).snapshotCommand, "stabilize": (*interaction).stabilizeCommand,
	"status": (*interaction).statusCommand, "stop": (*interaction).stop, "tick": (*interaction).tick,
	"transfer": (*interaction).transferCommand, "upgrade": (*interaction).upgrade, "wipe": (*interaction).wipe,
	"quorum-state": (*interaction).quorumStateCommand, "describe": (*interaction).describeCommand,
	"update-voter": (*interaction).updateVoterCommand,
}

// TestScriptsEndWithEqualLogs runs the scripts of testdata/interaction. Whatever a script does, in the end all logs are
// equal byte for byte, and hold everything that any node ever took for committed.
func TestScriptsEndWithEqualLogs(t *testing.T) {
	datadriven.Walk(t, "testdata/interaction", func(t *testing.T, path string) {
		in := &interaction{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			run, ok := interactionCommands[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			in.d = d
			return run(in)
		})
		in.finish()
	})
}

// id is the node that the first argument names.
func (in *interaction) id() int32 {
	var id int32
	if len(in.d.CmdArgs) == 0 {
		in.d.Fatalf(in.t, "which node?")
	}
	if _, err := fmt.Sscan(in.d.CmdArgs[0].Key, &id); err != nil {
		in.d.Fatalf(in.t, "node %q: %v", in.d.CmdArgs[0].Key, err)
	}
	return id
}

// node is the running node that the first argument names.
func (in *interaction) node() *testNode {
	n := in.nodes[in.id()]
	if n == nil || n.machine == nil {
		in.d.Fatalf(in.t, "node %d is not running", in.id())
	}
	return n
}

// arg is a named integer argument.
func (in *interaction) arg(name string, otherwise int64) int64 {
	in.d.MaybeScanArgs(in.t, name, &otherwise)
	return otherwise
}

// result shows an error or the state of all nodes.
func (in *interaction) result(err error) string {
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return in.status()
}

func (in *interaction) idList(args []datadriven.CmdArg) []int32 {
	var ids []int32
	for _, a := range args {
		for part := range strings.SplitSeq(a.Key, ",") {
			var id int32
			if _, err := fmt.Sscan(part, &id); err != nil {
				in.d.Fatalf(in.t, "node %q: %v", part, err)
			}
			ids = append(ids, id)
		}
	}
	return ids
}
