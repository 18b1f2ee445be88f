package harness

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Properties are the keys and values of a server.properties.
type Properties map[string]string

// with returns a copy with further keys; an empty value removes a key.
func (p Properties) with(more Properties) Properties {
	out := maps.Clone(p)
	maps.Copy(out, more)
	maps.DeleteFunc(out, func(_, v string) bool { return v == "" })
	return out
}

// write makes a server.properties in dir.
func (p Properties) write(dir string) (string, error) {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "%s=%s\n", k, p[k])
	}
	path := filepath.Join(dir, "server.properties")
	return path, os.WriteFile(path, []byte(b.String()), 0o600)
}

// nodeProperties are those of a combined node of one, with internal topics that one node can hold.
func nodeProperties(port, controllerPort int, logDir string) Properties {
	return Properties{
		"process.roles":                                    "broker,controller",
		"node.id":                                          "1",
		"controller.quorum.voters":                         fmt.Sprintf("1@127.0.0.1:%d", controllerPort),
		"listeners":                                        fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", port, controllerPort),
		"advertised.listeners":                             fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", port),
		"controller.listener.names":                        "CONTROLLER",
		"listener.security.protocol.map":                   "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"log.dirs":                                         logDir,
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "5",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		// Many tests write records of 1970. Retention would delete them half a minute after each broker's start, which
		// is not the same moment on both.
		"log.initial.task.delay.ms": "3600000",
	}
}
