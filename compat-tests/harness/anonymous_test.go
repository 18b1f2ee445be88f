package harness

import "testing"

func TestAnonymousHidesPortsOnlyWhereTheyAreNumbersOfTheirOwn(t *testing.T) {
	n := &Node{Addr: "127.0.0.1:24288", ControllerAddr: "127.0.0.1:12001", Dir: "/d", LogDir: "/d/log"}
	for text, want := range map[string]string{
		"524288 5242880 242889":                    "524288 5242880 242889",
		"PLAINTEXT://127.0.0.1:24288":              "PLAINTEXT://BROKER",
		"localhost:24288 (id: 1)":                  "localhost:PORT (id: 1)",
		"CONTROLLER://127.0.0.1:12001,x://h:12001": "CONTROLLER://CONTROLLER,x://h:CONTROLLERPORT",
		"/d/log/t-0 /d/server.properties":          "LOGDIR/t-0 DIR/server.properties",
		"node 24288":                               "node PORT",
	} {
		if got := n.Anonymous(text); got != want {
			t.Errorf("Anonymous(%q) is %q, want %q", text, got, want)
		}
	}
}
