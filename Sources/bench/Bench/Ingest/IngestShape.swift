/// Kind of WAL that the benchmark `ingest` measures: the SQL that produces it, and the rows that a log must have
/// afterwards.
struct IngestShape: Sendable {
    enum Kind: Sendable { case inserts, fullUpdates }

    let name: String
    /// Name of the shape's table. Its slot and its publication have the same name.
    let table: String
    let kind: Kind
    let rows: Int
    let rowsPerTransaction: Int

    var publication: String { table }
    /// Name of a second table. It gets one row after the shape's WAL, so that a receiver knows that the WAL has ended.
    var marker: String { table + "_done" }
    var transactions: Int { rows / rowsPerTransaction }

    static func all(isQuick: Bool) -> [IngestShape] {
        let scale = isQuick ? 20 : 1
        return [
            IngestShape(
                name: "1 insert per transaction", table: "single_inserts", kind: .inserts, rows: 200_000 / scale,
                rowsPerTransaction: 1),
            IngestShape(
                name: "1000 inserts per transaction", table: "batch_inserts", kind: .inserts, rows: 500_000 / scale,
                rowsPerTransaction: 1000),
            IngestShape(
                name: "1000 full updates per transaction", table: "full_updates", kind: .fullUpdates,
                rows: 300_000 / scale, rowsPerTransaction: 1000),
            IngestShape(
                name: "\(1_000_000 / scale) inserts in one transaction", table: "one_transaction", kind: .inserts,
                rows: 1_000_000 / scale, rowsPerTransaction: 1_000_000 / scale),
        ]
    }

    /// Eight columns, about 270 bytes in a CopyData message. The project's `performance` figures refer to such rows.
    static let columns = """
        id bigint PRIMARY KEY, owner_id uuid, created_at timestamptz, amount numeric(12,2), is_settled boolean,
        status text, title text, details jsonb
        """

    var create: String {
        "CREATE TABLE \(table) (\(Self.columns)); ALTER TABLE \(table) REPLICA IDENTITY "
            + (kind == .fullUpdates ? "FULL" : "DEFAULT")
    }

    /// SQL that must run before the slot is created; nil if there is none.
    var prepare: String? { kind == .fullUpdates ? insert("1", "\(rows)") : nil }

    /// SQL that writes the rows, and so produces the WAL. Its session does not wait for the disk at each commit.
    var load: String {
        let step = kind == .inserts ? insert("first", "last") : update("first", "last")
        return """
            DO $load$
            DECLARE
                first bigint := 1;
                last bigint;
            BEGIN
                WHILE first <= \(rows) LOOP
                    last := first + \(rowsPerTransaction - 1);
                    \(step);
                    COMMIT;
                    first := last + 1;
                END LOOP;
            END $load$
            """
    }

    private func insert(_ first: String, _ last: String) -> String {
        """
        INSERT INTO \(table)
        SELECT n, md5(n::text)::uuid, '2026-03-01 10:20:30.123456+00'::timestamptz + n * interval '1.000001 s',
               (n % 100000) / 100.0, n % 2 = 0, 'confirmed', 'Expense number ' || n || ' of a shared trip',
               jsonb_build_object('category', 'food', 'participants', 4, 'note', 'split evenly', 'city', 'Lisbon')
        FROM generate_series((\(first))::bigint, (\(last))::bigint) AS n
        """
    }

    private func update(_ first: String, _ last: String) -> String {
        "UPDATE \(table) SET amount = amount + 1, status = 'cancelled' WHERE id BETWEEN \(first) AND \(last)"
    }
}
