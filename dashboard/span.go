package dashboard

import (
	"fmt"
	"strings"
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
	var parts []string
	for i := range units {
		if n := d / units[i].length; n > 0 || len(parts) > 0 {
			if d -= n * units[i].length; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, name(i)))
			}
			if i > 0 && len(parts) == 2 || len(parts) > 0 && d == 0 {
				break
			}
		}
	}
	return strings.Join(parts, " ")
}
