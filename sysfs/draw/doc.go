// Package draw shows a machine to people: Tree as text for a terminal, SVG as a
// picture. Both are pure: they read nothing but the Host, and the same Host gives
// the same bytes.
//
// What a machine calls its parts is not trusted: text is brought to one line,
// bounded in length, and stripped of all that is not printable. References that
// lead nowhere cost the part that holds them, not the drawing.
package draw
