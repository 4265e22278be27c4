"""Reports for people and programs: what a release did, and one boot as a bug report.

Trap: a report that travels carries a host name, a key, or markup that a server's answer smuggled in. Rule: text from outside is fenced,
bounded and anonymised at one place, and everything else is a pure function over rows.
"""
