import Embedded
import Explaining
import History
import Postgres

/// Database in which the benchmark `incident` tries a changed policy. It has the same table as the incident's log.
final class IncidentDatabase {
    /// Owner of row 17.
    static let owner = "00000000-0000-4000-8000-000000000017"

    let cluster: PrivateCluster

    init(_ place: Workplace) throws {
        cluster = try PrivateCluster(directory: place.path + "/postgres", options: PrivateCluster.Options())
        try cluster.start()
        try cluster.connect().execute(
            """
            CREATE ROLE reader; CREATE TABLE orders (id int8 PRIMARY KEY, owner uuid, state text, version int4);
            ALTER TABLE orders REPLICA IDENTITY FULL; GRANT SELECT ON orders TO reader;
            ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
            CREATE POLICY own ON orders FOR SELECT TO reader USING (owner =
                ((nullif(current_setting('request.jwt.claims', true), '')::jsonb) ->> 'sub')::uuid);
            CREATE PUBLICATION supabase_realtime FOR TABLE orders;
            """)
    }

    func close() { cluster.stop() }

    /// Answers a `tidewire whatif` question over the whole log: which rows a client would gain and lose if the policy
    /// showed open orders instead of the client's own ones.
    func answer(_ history: HistoryLog) throws -> WhatIfReport {
        let holder = try ExplainedHolder(claims: nil, role: "reader", subject: Self.owner)
        let settings = WhatIf.Settings(
            target: ConnectionTarget(cluster.url(database: "postgres")), publication: "supabase_realtime",
            deletesAreStrict: true)
        return try WhatIf(history, settings).answer(
            "ALTER POLICY own ON orders USING (state = 'open')", for: [holder], in: history.window(from: nil, to: nil)
        ) { _, _ in }
    }
}
