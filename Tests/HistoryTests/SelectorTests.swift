import Change
import TestSupport
import Testing

@testable import History

@Suite(.within(minutes: 5)) struct SelectorTests {
    /// The time 2026-11-14 10:02:11 UTC.
    let now: Int64 = 1_794_650_531_000_000

    @Test func `reads times`() {
        let midnight = HistoryBound.time(now - 36_131_000_000)
        #expect(HistoryBound("now", now: now) == .time(now))
        #expect(HistoryBound("2026-11-14", now: now) == midnight)
        #expect(HistoryBound("2026-11-14T10:02:11Z", now: now) == .time(now))
        #expect(HistoryBound("2026-11-14 12:02:11.000+02:00", now: now) == .time(now))
        #expect(HistoryBound("2026-11-14T04:32:11-0530", now: now) == .time(now))
        #expect(HistoryBound("2026-11-14T10:02", now: now) == .time(now - 11_000_000))
        #expect(HistoryBound("2026-11-14T10:02:11.5", now: now) == .time(now + 500_000))
        #expect(HistoryBound("2026-11-14", now: now) { _ in 3600 } == .time(now - 36_131_000_000 - 3_600_000_000))
        #expect(HistoryBound("-15m", now: now) == .time(now - 900_000_000))
        #expect(HistoryBound("-1d12h", now: now) == .time(now - 129_600_000_000))
        #expect(HistoryBound("-0s", now: now) == .time(now))
    }

    @Test func `reads positions`() {
        #expect(HistoryBound("@0", now: now) == .offset(0))
        #expect(HistoryBound("@18446744073709551615", now: now) == .offset(.max))
        #expect(HistoryBound("lsn:0/16B3748", now: now) == .lsn(LSN(0x16b_3748)))
        #expect(HistoryBound("xid:7421", now: now) == .xid(7421))
        #expect(HistoryBound("oldest", now: now) == .oldest)
    }

    @Test(arguments: [
        "", "-", "-15", "-m", "-15x", "--15m", "15m", "-99999999999999w", "@", "@-1", "@+1", "@18446744073709551616",
        "lsn:",
        "lsn:16B3748", "lsn:0/g", "xid:", "xid:4294967296", "xid:-1", "2026", "2026-02-30", "2026-13-01", "2026-11-14T",
        "2026-11-14T25:00", "2026-11-14T10", "2026-11-14T10:02:11.", "2026-11-14T10:02:11+2", "2026-11-14x",
        "0/16B3748",
    ])
    func `refuses what is none`(text: String) {
        #expect(HistoryBound(text, now: now) == nil)
    }

    @Test func `writes times that read back`() {
        for time in [0, 1, -1, now, -62_135_596_800_000_000, 253_402_300_799_999_999] {
            #expect(TimeText.parse(TimeText.json(time)) == time)
        }
        #expect(TimeText.json(now) == "2026-11-14T10:02:11.000000Z")
    }

    @Test func `reads names of tables and columns`() {
        #expect(TableName("notes") == TableName(schema: "public", name: "notes"))
        #expect(TableName("App.Notes") == TableName(schema: "App", name: "Notes"))
        #expect(TableName(#""a.b"."c""d""#) == TableName(schema: "a.b", name: "c\"d"))
        for text in ["", ".", "a.", ".a", "a.b.c", "\"a", "\"a\"b", "a\"b\""] {
            #expect(TableName(text) == nil, "\(text)")
        }
        #expect(ColumnMask("public.users.email")?.schema == "public")
        #expect(ColumnMask("a.b.c.d") == nil)
        #expect(TransactionName("7421") == .xid(7421))
        #expect(TransactionName("0/10") == .lsn(LSN(16)))
        #expect(TransactionName("-1h") == nil)
    }

    @Test func `reads conditions`() {
        #expect(RowCondition("a=b=c") == RowCondition(column: "a", .equals("b=c")))
        #expect(RowCondition("a!=") == RowCondition(column: "a", .differs("")))
        #expect(RowCondition("\"a=b\"=c") == RowCondition(column: "a=b", .equals("c")))
        #expect(RowCondition("a IS NULL") == RowCondition(column: "a", .isNull))
        #expect(RowCondition("a is not null") == RowCondition(column: "a", .isNotNull))
        for text in ["", "a", "=b", "!=b", " is null"] { #expect(RowCondition(text) == nil, "\(text)") }
    }
}
