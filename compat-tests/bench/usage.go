package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used.
type usage struct {
	cpu      time.Duration
	rssBytes int64
}

func (u usage) since(before usage) usage {
	return usage{cpu: u.cpu - before.cpu, rssBytes: u.rssBytes}
}

// usageOf reads the processor time of a process and its resident memory.
func usageOf(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, err
	}
	return parseUsage(stat, status)
}

// tick is the unit of processor times in /proc: USER_HZ, 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// parseUsage reads /proc/PID/stat, fields 14 and 15, and VmRSS of /proc/PID/status.
func parseUsage(stat, status []byte) (usage, error) {
	var u usage
	end := bytes.LastIndexByte(stat, ')') // the name before it may hold anything
	if end < 0 {
		return u, fmt.Errorf("no process name in %q", stat)
	}
	fields := strings.Fields(string(stat[end+1:]))
	const utime, stime = 14 - 3, 15 - 3 // counted from 1, and the first two are gone
	if len(fields) <= stime {
		return u, fmt.Errorf("%d fields in %q", len(fields), stat)
	}
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(n) * tick
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return u, err
			}
			u.rssBytes = n << 10
		}
	}
	return u, nil
}
