package draw

import (
	"fmt"
	"strings"
)

// paint is what a class looks like by day and by night. Where night is empty, it
// looks the same.
type paint struct{ class, day, night string }

// palette lists the classes. CSS variables would be shorter, but not everything
// that shows SVG knows them.
func palette() []paint {
	return []paint{
		{"bg", "fill:#f4f6fa", "fill:#0e131a"},
		{"pkg", "fill:#ffffff;stroke:#d3dae5", "fill:#161d27;stroke:#2c3848"},
		{"node", "fill:#f5f8fc;stroke:#d9e1ec", "fill:#1b2431;stroke:#324155"},
		{"mem", "fill:#faf7ff;stroke:#d9cdf0", "fill:#221d33;stroke:#4a3f6b"},
		{"group", "fill:none;stroke:#c3cddb;stroke-dasharray:3 2", "fill:none;stroke:#3c4b60;stroke-dasharray:3 2"},
		{"cache", "fill:#ffffff;stroke:#d5e0f0", "fill:#141b25;stroke:#2b3b52"},
		{"l3", "fill:#9fc1ec", "fill:#31598f"},
		{"l2", "fill:#c0d7f3", "fill:#284770"},
		{"l1", "fill:#dbe8f9", "fill:#213651"},
		{"core", "fill:#edf1f7;stroke:#ccd6e4", "fill:#202b3a;stroke:#3a4a60"},
		{"cpu", "fill:#3a6fd8", "fill:#4a80e8"},
		{"eff", "fill:#12917a", "fill:#17a088"},
		{"iso", "fill:#d9770f", "fill:#dd8420"},
		{"off", "fill:#e4e8ee;stroke:#a9b3c1;stroke-dasharray:2 2", "fill:#252d38;stroke:#66717f;stroke-dasharray:2 2"},
		{"deny", "fill:#ffffff;stroke:#c33d4e;stroke-width:1.5", "fill:#161d27;stroke:#e0626f;stroke-width:1.5"},
		{"used", "fill:#8494a9", "fill:#66778d"},
		{"hused", "fill:#7b4fd0", "fill:#8a62dc"},
		{"hfree", "fill:#c4b2ec", "fill:#54438a"},
		{"free", "fill:#e1e8f0", "fill:#2d3848"},
		{"wire", "fill:none;stroke:#a7b4c5;stroke-width:1.5", "fill:none;stroke:#4a5a70;stroke-width:1.5"},
		{"dev", "fill:#ffffff;stroke:#ccd6e4", "fill:#182029;stroke:#35445a"},
		{"gfx", "fill:#4f9a2f", "fill:#62ac42"},
		{"acc", "fill:#a043b8", "fill:#b45fcb"},
		{"net", "fill:#0f88b8", "fill:#2b9bc9"},
		{"sto", "fill:#b0622a", "fill:#c47a44"},
		{"oth", "fill:#738196", "fill:#7f8da1"},
		{"ink", "fill:none;stroke:#ffffff;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round", ""},
		{"vf", "fill:#0f88b8", "fill:#2b9bc9"},
		{"vfv", "fill:#7b4fd0", "fill:#8a62dc"},
		{"vfn", "fill:#dfe6ee", "fill:#344154"},
		{"heat", "fill:#e0701b", "fill:#e8792a"},
		{"t", "fill:#18222f", "fill:#e8eef6"},
		{"d", "fill:#56647a", "fill:#9caabd"},
		{"w", "fill:#ffffff", ""},
		{"k", "fill:#1d3b66", "fill:#d7e5f8"},
		{"x", "fill:#7b8798", "fill:#8e9bac"},
	}
}

// style returns the picture's style sheet: sizes, day, night.
func style() string {
	var day, night strings.Builder
	for _, p := range palette() {
		fmt.Fprintf(&day, ".%s{%s}\n", p.class, p.day)
		if p.night != "" {
			fmt.Fprintf(&night, ".%s{%s}\n", p.class, p.night)
		}
	}
	return `<style>
text{font-family:Inter,"Segoe UI",system-ui,-apple-system,"Helvetica Neue",Arial,sans-serif}
.s22{font-size:22px;font-weight:700}.s15{font-size:15px;font-weight:700}.s13{font-size:13px}.s12{font-size:12px;font-weight:600}.s11{font-size:11px}.s10{font-size:10px}.s9{font-size:9px}.s8{font-size:8px}
.b{font-weight:600}.m{text-anchor:middle}.e{text-anchor:end}
` + day.String() + "@media (prefers-color-scheme:dark){\n" + night.String() + "}\n</style>\n"
}
