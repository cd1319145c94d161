"""What an application makes of a topic: a table of transfers in SQLite.

sqlite_sink.py FILE create | fill (lines `id offset` on stdin) | count FROM UNTIL (rows of that range, and all rows)
"""
import sqlite3
import sys


def main(path, command, *words):
    with sqlite3.connect(path) as table:
        if command == "create":
            table.execute("CREATE TABLE transfers (id INTEGER PRIMARY KEY, first_seen_at_offset INTEGER)")
        elif command == "fill":
            rows = (line.split() for line in sys.stdin)
            # The number is the transfer's own: seen twice it is one row.
            table.executemany("INSERT OR IGNORE INTO transfers VALUES (?, ?)", rows)
        elif command == "count":
            within = table.execute("SELECT count(*) FROM transfers WHERE id >= ? AND id < ?", words).fetchone()
            (total,) = table.execute("SELECT count(*) FROM transfers").fetchone()
            print(within[0], total)
        else:
            sys.exit(__doc__)


main(*sys.argv[1:])
