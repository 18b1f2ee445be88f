//go:build !race

package protocol

// raceBuild is set in builds with the race detector, which turn append(s,
// make(...)...) into two allocations.
const raceBuild = false
