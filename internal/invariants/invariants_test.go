package invariants

import "testing"

func TestAssertPanicsOnlyWithTheTag(t *testing.T) {
	for name, call := range map[string]func(){
		"Assert":  func() { Assert(false, "two is three") },
		"Assertf": func() { Assertf(false, "%d is %d", 2, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := recover() != nil; got != Enabled {
					t.Fatalf("panicked %v, assertions enabled %v", got, Enabled)
				}
			}()
			call()
		})
	}
}

func TestAssertIsSilentWhenItHolds(*testing.T) {
	Assert(true, "never shown")
	Assertf(true, "never shown %d", 1)
}
