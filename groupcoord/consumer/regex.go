package consumer

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/groupcoord/schema"
	"gregor/protocol"
)

// compilePattern compiles a pattern as RE2, matching whole names.
func compilePattern(regex string) (*regexp.Regexp, error) {
	// By itself first: "a)(b" is no pattern, but what anchors it would make it one.
	_, err := syntax.Parse(regex, syntax.Perl)
	var re *regexp.Regexp
	if err == nil {
		re, err = regexp.Compile(`\A(?:` + regex + `)\z`)
	}
	if err != nil {
		return nil, protocol.NewError(kerr.InvalidRegularExpression.Code,
			fmt.Sprintf("SubscribedTopicRegex `%s` is not a valid regular expression: %s.", regex, describeSyntax(err)))
	}
	return re, nil
}

// describeSyntax says what is wrong with a pattern in the words of RE2/J, which
// Kafka uses and which are those of the regexp package but for one.
func describeSyntax(err error) string {
	var bad *syntax.Error
	switch {
	case !errors.As(err, &bad):
		return err.Error()
	case bad.Code == syntax.ErrUnexpectedParen:
		return "regexp/syntax: internal error"
	default:
		return bad.Code.String()
	}
}

func regexKey(groupID string) string { return "regex\x00" + groupID }

// updateRegex takes a new pattern, and has the group's patterns resolved in the
// background when that is due.
func (s *stepper) updateRegex(caller Caller) error {
	g, old, pattern := s.group, s.before.Regex, s.after.Regex
	refresh := false
	if old != pattern {
		s.regexChanged = true
		if n, _ := g.subscribers.Get(old); old != "" && n == 1 {
			s.records = append(s.records, regexTombstone(g.ID, old))
		}
		switch {
		case pattern == "":
			s.resolved = true
		case !g.subscribers.Has(pattern):
			if _, err := compilePattern(pattern); err != nil {
				return err
			}
			refresh = true
		case g.resolved.Has(pattern):
			s.resolved = true
		}
	}
	if !refresh && g.subscribers.Len() == 0 {
		return nil
	}
	if s.Background.Running(regexKey(g.ID)) {
		return nil
	}
	s.refreshPatterns(caller, refresh)
	return nil
}

// patterns returns the patterns of the group after this step.
func (s *stepper) patterns() []string {
	counts := maps.Collect(s.group.subscribers.All())
	if s.before.Regex != "" {
		if counts[s.before.Regex]--; counts[s.before.Regex] <= 0 {
			delete(counts, s.before.Regex)
		}
	}
	if s.after.Regex != "" {
		counts[s.after.Regex]++
	}
	return sortedKeys(counts)
}

// refreshPatterns resolves all patterns of the group if it has to be done, or if
// there is a pattern, a topic or a time that makes it due; but not too often.
func (s *stepper) refreshPatterns(caller Caller, refresh bool) {
	g, now := s.group, time.Now()
	version, millis := int64(-1), int64(-1)
	for _, r := range g.resolved.All() {
		if millis < 0 || r.Millis < millis {
			version, millis = r.Version, r.Millis
		}
	}
	if millis >= 0 && now.UnixMilli() <= millis+regexMinInterval.Milliseconds() {
		return
	}
	patterns := s.patterns()
	refresh = refresh || len(patterns) != g.resolved.Len() || version < s.newTopicsVersion ||
		millis < 0 || now.UnixMilli() > millis+s.Config.RegexRefreshInterval.Milliseconds()
	if !refresh || len(patterns) == 0 {
		return
	}
	m, topics, groupID := s.Manager, s.Topics(), g.ID
	m.Background.Run(regexKey(groupID), func() func() (Effect, error) {
		resolved := resolve(patterns, topics, caller.MayDescribe)
		return func() (Effect, error) { return m.patternsResolved(groupID, resolved), nil }
	})
}

// resolve matches the patterns with the names of all topics. The caller is who
// asked; it gets only what it may see.
func resolve(patterns []string, topics Topics, mayDescribe func([]string) []string) map[string]Resolved {
	now := time.Now().UnixMilli()
	names := make(map[string][]string, len(patterns))
	compiled := make(map[string]*regexp.Regexp, len(patterns))
	for _, pattern := range patterns {
		names[pattern] = nil
		if re, err := compilePattern(pattern); err == nil {
			compiled[pattern] = re
		}
	}
	matched := make(map[string]struct{})
	topics.Each(func(t Topic) bool {
		for pattern, re := range compiled {
			if re.MatchString(t.Name) {
				names[pattern] = append(names[pattern], t.Name)
				matched[t.Name] = struct{}{}
			}
		}
		return true
	})
	allowed := sortedKeys(matched)
	if mayDescribe != nil {
		allowed = mayDescribe(allowed)
		slices.Sort(allowed)
	}
	out := make(map[string]Resolved, len(patterns))
	for pattern, all := range names {
		r := Resolved{Version: topics.Version(), Millis: now}
		for _, name := range all {
			if _, ok := slices.BinarySearch(allowed, name); ok {
				r.Topics = append(r.Topics, name)
			}
		}
		slices.Sort(r.Topics)
		out[pattern] = r
	}
	return out
}

// patternsResolved takes the topics of the patterns, and bumps the group epoch
// when they changed.
func (m *Manager) patternsResolved(groupID string, resolved map[string]Resolved) Effect {
	g := m.Groups.Consumer(groupID)
	if g == nil {
		return Effect{}
	}
	var records []schema.Record
	bump := false
	now := make(map[string]Resolved)
	for _, pattern := range sortedKeys(resolved) {
		if !g.subscribers.Has(pattern) {
			// Its last member left meanwhile.
			continue
		}
		old, _ := g.resolved.Get(pattern)
		bump = bump || !slices.Equal(old.Topics, resolved[pattern].Topics)
		now[pattern] = resolved[pattern]
		records = append(records, regexRecord(groupID, pattern, resolved[pattern]))
	}
	hash := m.hashes.metadata(g.topicNames(change{resolved: now}), m.Topics())
	if bump || hash != g.hash.Get() {
		epoch := g.Epoch() + 1
		records = append(records, epochRecord(groupID, epoch, hash))
		g.refreshedEpoch = epoch
		m.Rebalanced()
		m.Logger.Info("group epoch bumped: patterns match other topics", "group", groupID, "epoch", epoch)
	}
	return Effect{Records: records}
}
