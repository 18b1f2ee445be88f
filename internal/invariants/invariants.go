// Package invariants holds assertions that cost nothing in a release build.
//
// They are compiled in with the build tag "invariants", which every test run of
// the repository sets once in a while. An assertion states what the program
// itself guarantees; what a peer, a disk or an operator may get wrong is an
// error, never an assertion.
package invariants

import "fmt"

// Assert panics with message when holds is false and the build has the tag
// "invariants". Guard an expensive condition with Enabled.
func Assert(holds bool, message string) {
	if Enabled && !holds {
		panic("invariant violated: " + message)
	}
}

// Assertf is Assert with a formatted message. The arguments are evaluated in
// every build, so guard it with Enabled on a hot path.
func Assertf(holds bool, format string, args ...any) {
	if Enabled && !holds {
		panic("invariant violated: " + fmt.Sprintf(format, args...))
	}
}
