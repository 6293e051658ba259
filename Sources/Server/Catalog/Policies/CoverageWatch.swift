import Diagnostics
import Postgres

/// Which tables' changes come down the stream whole: all of them, with all columns.
///
/// A transaction that was running when a table was put into a publication may have changed it before: that change is
/// not sent, though it is committed later. So a table counts when all of those are over. One thread's.
final class CoverageWatch {
    /// Tables that are published whole, and the transaction number from which on this has been so.
    private var horizons: [UInt32: UInt64] = [:]
    private(set) var isWaiting = false

    /// `published` are the tables at the moment of the snapshot that ends below.
    func take(_ published: Set<UInt32>, firstRunning: UInt64, firstUnassigned: UInt64) -> Set<UInt32> {
        horizons = horizons.filter { published.contains($0.key) }
        for table in published where horizons[table] == nil { horizons[table] = firstUnassigned }
        let covered = Set(horizons.filter { firstRunning >= $0.value }.keys)
        isWaiting = covered.count < horizons.count
        return covered
    }
}

extension CatalogReader {
    /// Tables that memberships may live on.
    func followed() throws(PostgresError) -> Set<UInt32> {
        let published = try query(
            """
            SELECT DISTINCT g.relid
            FROM pg_publication p CROSS JOIN LATERAL pg_get_publication_tables(p.pubname::text) g
            WHERE p.pubname = ANY ($1::text[]) AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate
                AND NOT EXISTS (
                    SELECT FROM pg_publication_rel r
                    WHERE r.prpubid = p.oid AND r.prrelid = g.relid
                        AND (to_jsonb(r) ->> 'prattrs' IS NOT NULL OR to_jsonb(r) ->> 'prqual' IS NOT NULL))
            """, [PostgresArray.literal([publication])])
        // Asked afterwards: what runs from here on sees the tables published.
        let transactions = try visibleTransactions()
        return coverage.take(
            Set(published.values.compactMap { $0.number(0) }), firstRunning: transactions.firstRunning,
            firstUnassigned: transactions.firstUnassigned)
    }
}
