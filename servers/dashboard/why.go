package dashboard

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A moment is the state of a budget at one moment, as far as it explains why requests wait.
type moment struct {
	Limit    string // in its text form, such as "20/s"
	Kind     string // of limit: see kindOf
	Capacity int    // 0 for a limit without a number
	Used     int
	Booked   int
	Waiting  int
	Wait     time.Duration // until the next free start, negative if no start can be planned
	Left     time.Duration // remaining time of the closure, 0 if open
	Closer   string        // what closed it, such as fleet.ByAnswer, "" if unknown
	By       string        // the operator who paused it, if one did
	Reason   string
	Repeated int
	Ceiling  float64 // learned ceiling, 0 for none
	Shadow   bool
	Opened   time.Duration // time since it opened, 0 for long
	Err      string        // why the state is unknown
}

// holds reports whether a new request could not start at once: the budget is closed or full, or requests wait already.
func (m *moment) holds() bool {
	hasNoRoom := m.Wait != 0 || m.Kind == inFlight && m.isFull() // Wait is 0 for slots
	return m.Left > 0 || hasNoRoom || m.Waiting > 0
}

// whyOf explains in each language why requests wait for a budget, or that none do, or that its state is unknown.
func whyOf(m moment) phrase {
	if m.Err != "" {
		return phrase{"The state of the budget is unknown: " + m.Err, "不知道这份限额现在怎么样：" + m.Err}
	}
	why := m.reason()

	// No request waits for a policy that only counts.
	if m.Shadow {
		return why
	}
	return why.and(m.waiting())
}

// reason is whyOf without the number of waiting requests, which the page shows beside it.
func (m *moment) reason() phrase {
	cause := m.cause()
	if m.Shadow {
		return m.shadow(cause)
	}
	return cause.and(m.learned())
}

// cause explains what keeps the next request from starting.
func (m *moment) cause() phrase {
	switch {
	// Closures come first: they hold requests whatever the counts are.
	case m.Left > 0:
		return m.closure()
	case m.Kind == inFlight && (m.isFull() || m.Waiting > 0): // Wait is 0 for slots: nobody knows when a request ends
		return m.slots()
	case m.Wait == 0:
		return m.room()
	case m.Wait < 0:
		return phrase{"No start can be planned.", "排不出放行时间。"}
	case m.Opened > 0 && m.Used < m.Capacity:
		return m.slowStart()
	case m.Kind == spaced:
		return phrase{
			fmt.Sprintf("%s spaces starts out%s.", m.Limit, m.next().English),
			fmt.Sprintf("%s 要求请求均匀发出，%s。", m.Limit, m.next().Chinese),
		}

	case m.Kind == bucketed:
		return phrase{
			fmt.Sprintf("The bucket of %s is empty%s%s.", m.Limit, m.ahead(" and the next %d booked"), m.next().English),
			fmt.Sprintf("%s 的令牌用完了%s，%s。", m.Limit, m.ahead("，另有 %d 个已排定"), m.next().Chinese),
		}
	}
	return m.window()
}

// isFull reports whether all of the capacity is in use.
func (m *moment) isFull() bool { return m.Used >= m.Capacity }

// closure explains that the budget is closed, and by whom.
func (m *moment) closure() phrase {
	left := phrase{span(m.Left), spanChinese(m.Left)}
	switch {
	case m.By != "":
		return phrase{
			fmt.Sprintf("%s paused it%s; it opens in %s.", m.By, quoted(": “%s”", m.Reason), left.English),
			fmt.Sprintf("%s人工暂停了这份限额%s，%s后恢复。", besideChinese(m.By), quoted("，原因是“%s”", m.Reason), left.Chinese),
		}

	case m.Closer == fleet.ByProgram:
		return phrase{
			fmt.Sprintf("A program paused it; it opens in %s.", left.English),
			fmt.Sprintf("程序自己暂停了这份限额，%s后恢复。", left.Chinese),
		}
	}

	return phrase{
		fmt.Sprintf("The upstream refused a request, so nothing starts for another %s%s.", left.English, m.repeated().English),
		fmt.Sprintf("对方拒绝过请求，限额自动暂停，%s后恢复%s。", left.Chinese, m.repeated().Chinese),
	}
}

// slots explains why requests wait for slots.
func (m *moment) slots() phrase {
	if m.isFull() {
		return phrase{
			fmt.Sprintf("%s in use: the next request starts when another one ends.", allSlots(m.Capacity)),
			fmt.Sprintf("同时最多 %d 个，已经占满，要等前面的请求结束。", m.Capacity),
		}
	}
	return phrase{
		fmt.Sprintf("%d of %d slots are in use, and those who came first take the others.", m.Used, m.Capacity),
		fmt.Sprintf("同时最多 %d 个，已占 %d 个，其余的先给排在前面的请求。", m.Capacity, m.Used),
	}
}

// room explains that a request could start now.
func (m *moment) room() phrase {
	switch {
	case m.Waiting > 0:
		return phrase{"There is room here: those who wait start in a moment, or another limit holds them.", "这里有余量：排队的马上放行，或者在等别的限额。"}
	case m.Capacity > 0 && m.Kind != spaced:
		return phrase{
			fmt.Sprintf("Nothing holds a request: %d of %d are used.", m.Used, m.Capacity),
			fmt.Sprintf("不用排队：限额 %d，用了 %d。", m.Capacity, m.Used),
		}
	}
	return phrase{"Nothing holds a request.", "不用排队。"}
}

// slowStart explains that a penalty has ended a short time ago.
func (m *moment) slowStart() phrase {
	return phrase{
		fmt.Sprintf("It opened %s ago and fills up slowly after the penalty: the next free start is in %s.", span(m.Opened), span(m.Wait)),
		fmt.Sprintf("%s前才恢复，正在慢慢加量，再过 %s才能放行。", spanChinese(m.Opened), spanChinese(m.Wait)),
	}
}

// window explains why requests wait for a limit that counts the starts of a window.
func (m *moment) window() phrase {
	wait := phrase{span(m.Wait), spanChinese(m.Wait)}
	isTaken := m.Used+m.Booked >= m.Capacity
	switch {
	case isTaken && m.Waiting > m.Booked: // Wait counts the line, too
		return phrase{
			fmt.Sprintf("%d of %d are used%s, and those in line come first: a request that comes now could start in %s.", m.Used, m.Capacity, m.ahead(", the next %d booked"), wait.English),
			fmt.Sprintf("限额 %d，用了 %d%s，前面还有请求在排队：现在来的请求再过 %s才能放行。", m.Capacity, m.Used, m.ahead("，另有 %d 个已排定"), wait.Chinese),
		}

	case isTaken && m.Booked > 0:
		return phrase{
			fmt.Sprintf("%d of %d are used and the next %d booked: the next free start is in %s.", m.Used, m.Capacity, m.Booked, wait.English),
			fmt.Sprintf("限额 %d，用了 %d，另有 %d 个已排定，再过 %s才能放行。", m.Capacity, m.Used, m.Booked, wait.Chinese),
		}

	case isTaken:
		return phrase{
			fmt.Sprintf("All %d of %s are used: the next free start is in %s, when the oldest one no longer counts.", m.Capacity, m.Limit, wait.English),
			fmt.Sprintf("%s 已经用完，再过 %s最早的一批不再计数，才能放行。", m.Limit, wait.Chinese),
		}
	}

	return phrase{
		fmt.Sprintf("%d of %d are used, and those who came first take the rest: the next free start is in %s.", m.Used, m.Capacity, wait.English),
		fmt.Sprintf("限额 %d，用了 %d，余下的先给排在前面的请求，再过 %s才能放行。", m.Capacity, m.Used, wait.Chinese),
	}
}

// allSlots begins the English sentence of a budget without a free slot.
func allSlots(n int) string {
	if n == 1 {
		return "The only slot is"
	}
	return fmt.Sprintf("All %d slots are", n)
}

// next says when a new request could start: behind all requests in line.
func (m *moment) next() phrase {
	if m.Waiting > m.Booked {
		return phrase{
			fmt.Sprintf("; those in line come first: a request that comes now could start in %s", span(m.Wait)),
			fmt.Sprintf("前面还有请求在排队：现在来的请求再过 %s才能放行", spanChinese(m.Wait)),
		}
	}
	return phrase{fmt.Sprintf(": the next free start is in %s", span(m.Wait)), fmt.Sprintf("再过 %s才能放行", spanChinese(m.Wait))}
}

// waiting says how many requests wait.
func (m *moment) waiting() phrase {
	switch m.Waiting {
	case 0:
		return phrase{}
	case 1:
		return phrase{"1 request waits.", "有 1 个请求在排队。"}
	}
	return phrase{fmt.Sprintf("%d requests wait.", m.Waiting), fmt.Sprintf("有 %d 个请求在排队。", m.Waiting)}
}

// learned says that the fleet uses less than the limit.
func (m *moment) learned() phrase {
	if m.Ceiling == 0 {
		return phrase{}
	}
	return phrase{
		fmt.Sprintf("The fleet has learned to use only %.4g of %s.", m.Ceiling, m.Limit),
		fmt.Sprintf("根据对方的拒绝，目前只用 %s 里的 %.4g。", m.Limit, m.Ceiling),
	}
}

// repeated says how often a ban was repeated.
func (m *moment) repeated() phrase {
	chinese := fmt.Sprintf("；恢复之后又被拒绝，已连续 %d 次", m.Repeated)
	switch m.Repeated {
	case 0:
		return phrase{}
	case 1:
		return phrase{"; it refused again as soon as it could", chinese}
	}
	return phrase{fmt.Sprintf("; it refused again %d times in a row", m.Repeated), chinese}
}

// shadow says what a shadow policy would do because of a cause.
func (m *moment) shadow(cause phrase) phrase {
	if !m.holds() {
		return phrase{"This policy only counts, and would hold nothing now.", "这条策略只计数。就算生效，现在也不用排队。"}
	}
	return phrase{
		"This policy only counts. If it held requests: " + strings.ToLower(cause.English[:1]) + cause.English[1:],
		"这条策略只计数。如果生效：" + cause.Chinese,
	}
}

// ahead says how many starts are booked, or "".
func (m *moment) ahead(format string) string {
	if m.Booked == 0 {
		return ""
	}
	return fmt.Sprintf(format, m.Booked)
}

// besideChinese returns a name for use before Chinese characters: a space follows Latin letters.
func besideChinese(name string) string {
	if last, _ := utf8.DecodeLastRuneInString(name); unicode.Is(unicode.Han, last) {
		return name
	}
	return name + " "
}

// quoted formats a text, or returns "" for an empty text.
func quoted(format, text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(format, text)
}

// and returns two sentences, the second of which may be empty.
func (p phrase) and(q phrase) phrase {
	if q.English == "" {
		return p
	}
	return phrase{p.English + " " + q.English, p.Chinese + q.Chinese}
}

// opening is how long after its end a penalty still explains why there is little
// room. Most slow starts are over by then.
const opening = time.Minute

// explain sets the explanation of each budget in a reading, if its state is known, and it is closed, has requests that wait or
// only counts. Other budgets get none.
func explain(r *reading) {
	at := r.At.UnixMilli()
	for i := range r.Budgets {
		b := &r.Budgets[i]
		m := b.moment()
		m.Used, m.Booked, m.Waiting, m.Wait = b.Used, b.Booked, b.Callers, millis(b.Wait)
		m.Left, m.Err = millis(max(0, b.Until-at)), b.Err
		m.setBand(b.Bands, at)
		b.Why = nil
		if b.Err == "" && (m.Left > 0 || m.Waiting > 0 || m.Shadow) {
			sentence := m.reason()
			b.Why = &sentence
		}
	}
}

// moment returns the constant part of a budget's moment.
func (b *budget) moment() moment {
	return moment{
		Limit: strings.Join(b.Limits, " or "), Kind: b.Kind, Capacity: b.Capacity,
		Closer: b.Closer, By: b.By, Reason: b.Reason, Repeated: b.Repeated, Ceiling: b.Ceiling, Shadow: b.Shadow,
	}
}

// setBand sets who closed the budget, or how long ago it opened, from its bands. at is the moment in Unix milliseconds.
func (m *moment) setBand(all []band, at int64) {
	for i := range all {
		switch b := &all[i]; {
		case b.From <= at && at < b.Until:
			m.Closer, m.By, m.Reason = b.Closer, b.By, b.Reason
		case b.Until <= at && millis(at-b.Until) < opening:
			m.Opened = max(time.Millisecond, millis(at-b.Until)) // 0 means that it opened long ago
		}
	}
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// units are units of time, longest first.
var units = []struct {
	length           time.Duration
	english, chinese string
}{
	{24 * time.Hour, "d", "天"},
	{time.Hour, "h", "小时"},
	{time.Minute, "min", "分钟"},
	{time.Second, "s", "秒"},
}

// span formats a duration in English, in at most two units.
func span(d time.Duration) string {
	return inUnits(d, "ms", func(i int) string { return units[i].english })
}

// spanChinese formats a duration in Chinese.
func spanChinese(d time.Duration) string {
	return inUnits(d, "毫秒", func(i int) string { return units[i].chinese })
}

// inUnits formats a duration: from ten seconds on in its largest unit and the next smaller unit. name returns the name of
// the unit at an index of units, and milliseconds is the name of the unit below them.
func inUnits(d time.Duration, milliseconds string, name func(unit int) string) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d %s", d.Milliseconds(), milliseconds)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f %s", d.Round(100*time.Millisecond).Seconds(), name(len(units)-1))
	}

	d = d.Round(time.Second)
	first := 0
	for units[first].length > d {
		first++
	}

	text := fmt.Sprintf("%d %s", d/units[first].length, name(first))
	if rest := d % units[first].length; first+1 < len(units) && rest >= units[first+1].length {
		text += fmt.Sprintf(" %d %s", rest/units[first+1].length, name(first+1))
	}

	return text
}
