// Package outage says when a failure that goes on is worth a line in the log: once it has lasted a while, then ever
// more seldom, and when it is over. A retry every few milliseconds would else fill the log with one and the same line.
package outage

import "time"

// maxPause is the longest time between two lines about the same outage.
const maxPause = time.Minute

// Outage is one thing that may fail for some time. The zero value speaks at the first failure. It is not safe for
// concurrent use.
type Outage struct {
	// Grace is how long a failure lasts before it is worth a line.
	Grace time.Duration

	began, due time.Time
	pause      time.Duration
	said       bool
}

// Fails notes a failure at a time and returns whether to say it, and for how long it has lasted.
func (o *Outage) Fails(now time.Time) (say bool, lasted time.Duration) {
	if o.began.IsZero() {
		o.began, o.due, o.pause = now, now.Add(o.Grace), 10*time.Second
	}
	lasted = now.Sub(o.began)
	if now.Before(o.due) {
		return false, lasted
	}
	o.due, o.said = now.Add(o.pause), true
	o.pause = min(2*o.pause, maxPause)
	return true, lasted
}

// Ends notes that it works and returns whether an outage that was said is over by that, and how long it lasted.
func (o *Outage) Ends(now time.Time) (say bool, lasted time.Duration) {
	say, lasted = o.said, now.Sub(o.began)
	*o = Outage{Grace: o.Grace}
	return say, lasted
}
