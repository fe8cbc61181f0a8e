package dashboard

import (
	"fmt"
	"time"
)

// units are the parts of a length of time, the longest first.
var units = []struct {
	length           time.Duration
	english, chinese string
}{
	{24 * time.Hour, "d", "天"},
	{time.Hour, "h", "小时"},
	{time.Minute, "min", "分钟"},
	{time.Second, "s", "秒"},
}

// span returns a length of time in English, with two units at the most.
func span(d time.Duration) string {
	return inUnits(d, "ms", func(i int) string { return units[i].english })
}

// spanChinese is span in Chinese.
func spanChinese(d time.Duration) string {
	return inUnits(d, "毫秒", func(i int) string { return units[i].chinese })
}

// inUnits returns a length of time.
func inUnits(d time.Duration, millis string, name func(unit int) string) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d %s", d.Milliseconds(), millis)
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
