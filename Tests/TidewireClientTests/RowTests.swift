import Foundation
import TestSupport
import Testing

@testable import TidewireClient

private struct Wide: Decodable, Equatable {
    enum Status: String, Decodable { case open, done }
    let id: Int64
    let ownerID: UUID
    let amount: Decimal
    let precise: PostgresNumeric
    let weight: Double
    let broken: Double
    let maybe: Double?
    let status: Status
    let updatedAt: Date
    let day: Date
    let tags: [String?]
    let grid: [[Int]]
    let details: JSONValue
    let blob: Data
    let mediaURL: URL?
}

@Suite(.within(minutes: 5)) struct RowTests {
    @Test func `every type that the server sends is what it was`() throws {
        let row = try RowImage(
            JSONValue(
                parsing: """
                    {"id":9007199254740993,"owner_id":"22978663-6c1a-4d48-a717-ba5f18e9a1bb","amount":12345678901234.5600,
                     "precise":123456789012345678901234567890123456789012345.1,"weight":52,"broken":null,"maybe":null,
                     "status":"open","updated_at":"2026-03-01T10:20:30.123456+02:00","day":"2026-03-01",
                     "tags":["a",null,"b,c"],"grid":[[1,2],[3]],"details":{"k":[1,null]},"blob":"0102ff",
                     "media_url":"https://x.example/1","another":1}
                    """
            ).object ?? [:]
        ).decode(Wide.self)
        #expect(row.id == 9_007_199_254_740_993)
        #expect(row.ownerID == UUID(uuidString: "22978663-6C1A-4D48-A717-BA5F18E9A1BB"))
        #expect(row.amount == Decimal(string: "12345678901234.56"))
        #expect(row.precise.digits == "123456789012345678901234567890123456789012345.1")
        #expect(row.weight == 52 && row.broken.isNaN && row.maybe == nil)
        #expect(row.status == .open)
        #expect(abs(row.updatedAt.timeIntervalSince1970 - 1_772_353_230.123456) < 0.000001)
        #expect(row.day.timeIntervalSince1970 == 1_772_323_200)
        #expect(row.tags == ["a", nil, "b,c"] && row.grid == [[1, 2], [3]])
        #expect(row.details == ["k": [1, nil]])
        #expect(row.blob == Data([1, 2, 255]))
        #expect(row.mediaURL?.absoluteString == "https://x.example/1")
    }

    @Test(arguments: [
        ("1970-01-01T00:00:00", 0.0), ("1970-01-01 00:00:00+00", 0), ("1970-01-01", 0),
        ("1969-12-31T23:59:59.5Z", -0.5),
        ("2000-02-29T12:00:00-05:30", 951_845_400), ("0001-01-01 BC", -62_167_219_200),
        ("1970-01-01T00:00:00.000001", 1e-6),
    ])
    func `times are instants, without a zone in UTC`(text: String, seconds: Double) {
        let found = PostgresTime.date(text)?.timeIntervalSince1970
        #expect(found.map { abs($0 - seconds) < 0.0000005 } == true)
    }

    @Test(arguments: ["", "x", "2026-13-01", "2026-03-01T", "2026-03-01T10:20", "2026-03-01T10:20:30 Europe/Rome"])
    func `what is no time is none`(text: String) {
        #expect(PostgresTime.date(text) == nil)
    }

    @Test func `times for filters are read as the same instant`() {
        for seconds in [0, -0.5, 951_845_400.25, 1_772_353_230.123456, -62_135_596_800] {
            let date = Date(timeIntervalSince1970: seconds)
            let again = PostgresTime.date(PostgresTime.text(date))
            #expect(again.map { abs($0.timeIntervalSince(date)) < 0.000002 } == true)
        }
    }

    @Test func `an error says where and what was expected, and not what is in the row`() throws {
        do {
            _ = try RowImage(["id": "a secret"]).decode(Int.self, column: "id")
            Issue.record("no error")
        } catch let DecodingError.typeMismatch(_, context) {
            #expect(context.debugDescription == "expected Int, found a text")
            #expect(context.codingPath.map(\.stringValue) == ["id"])
        }
    }

    @Test func `numbers that do not fit are refused and never rounded`() {
        #expect(throws: DecodingError.self) { try RowImage(["n": .number("300")]).decode(Int8.self, column: "n") }
        #expect(throws: DecodingError.self) { try RowImage(["n": .number("1.5")]).decode(Int.self, column: "n") }
    }
}

private struct Task1: LiveRow {
    enum Status: String, FilterValue, Decodable { case open, done }
    static let table = "tasks"
    let id: UUID
    struct Columns: Sendable {
        let ownerID = LiveColumn<UUID>("owner_id")
        let status = LiveColumn<Status>("status")
        let title = LiveColumn<String>("title")
        let points = LiveColumn<Int>("points")
        let due = LiveColumn<Date>("due")
    }
    static let columns = Columns()
}

@Suite(.within(minutes: 5)) struct FilterTests {
    private let me = UUID(uuidString: "22978663-6C1A-4D48-A717-BA5F18E9A1BB") ?? UUID()

    private func text(_ filter: LiveFilter<Task1>) -> String { filter.text }

    @Test func `conditions are joined as the server reads them`() {
        #expect(text(\.ownerID == me) == "owner_id=eq.22978663-6c1a-4d48-a717-ba5f18e9a1bb")
        #expect(text(\.points > 3 && \.points <= 9 && \.status != .done) == "points=gt.3,points=lte.9,status=neq.done")
        #expect(
            text(\.status == .open || (\.points < 2 && .isNull(\.due)))
                == "or=(status.eq.open,and(points.lt.2,due.is.null))")
        #expect(text(!(\.status == .open)) == "status=not.eq.open")
        #expect(text(!(\.points > 1 || \.points < 0)) == "not.or=(points.gt.1,points.lt.0)")
        #expect(text(.among(\.status, [.open, .done])) == "status=in.(open,done)")
    }

    @Test func `values cannot begin another condition`() {
        #expect(text(\.title == "a, b=eq.c") == #"title=eq."a, b=eq.c""#)
        #expect(text(\.title == #"say "hi" \ )"#) == #"title=eq."say \"hi\" \\ )""#)
        #expect(text(.among(\.title, ["null", "", "a,b"])) == #"title=in.("null","","a,b")"#)
    }

    @Test func `a row's key is read from whatever has it`() throws {
        let image = RowImage(["id": .string(me.uuidString.lowercased())])
        #expect(try Task1.id(of: image) == me)
        #expect(Task1.hasKey(image.values) && !Task1.hasKey([:]))
    }
}

@Suite(.within(minutes: 5)) struct BatcherTests {
    private func change(_ commit: String = "a", table: String = "t") -> RowChange {
        let data: JSONValue = [
            "schema": "public", "table": .string(table), "type": "INSERT", "commit_timestamp": .string(commit),
            "columns": [], "record": [:],
        ]
        var last = RowChange.LastColumns()
        guard let change = RowChange(data, position: nil, &last) else {
            preconditionFailure("it has what a change needs")
        }
        return change
    }

    @Test func `rapid changes are one batch once it is quiet`() {
        var batcher = Batcher(.standard)
        for step in 0..<5 {
            batcher.add(change("\(step)"), at: .milliseconds(100 * step))
            #expect(batcher.due(at: .milliseconds(100 * step)) == nil)
        }
        #expect(batcher.due(at: .milliseconds(699)) == nil)
        #expect(batcher.due(at: .milliseconds(700))?.count == 5)
        #expect(batcher.nextWake == nil)
    }

    @Test func `a steady flow does not starve`() {
        var batcher = Batcher(.standard)
        var handed: [Int] = []
        for step in 0..<100 {
            let now = Duration.milliseconds(100 * step)
            batcher.add(change("\(step)"), at: now)
            if let batch = batcher.due(at: now) { handed.append(batch.count) }
        }
        #expect(handed.count >= 8)
        #expect(handed.allSatisfy { $0 <= 11 })
    }

    @Test func `chat is handed over at once, with whatever came before it`() {
        var batcher = Batcher(.standard, windows: ["chat": .immediate])
        batcher.add(change("1"), at: .zero)
        #expect(batcher.due(at: .zero) == nil)
        batcher.add(change("2", table: "chat"), at: .milliseconds(10))
        #expect(batcher.due(at: .milliseconds(10))?.map(\.table) == ["t", "chat"])
    }

    @Test func `a batch ends between transactions`() {
        var batcher = Batcher(BatchWindow(quietTime: .seconds(1), maximumDelay: .seconds(2), maximumChanges: 4))
        for commit in ["1", "1", "1", "2", "2"] { batcher.add(change(commit), at: .zero) }
        #expect(batcher.due(at: .zero)?.map(\.commitTimestamp) == ["1", "1", "1"])
        for _ in 0..<5 { batcher.add(change("2"), at: .milliseconds(10)) }
        #expect(batcher.due(at: .milliseconds(10)) == nil)
        #expect(batcher.due(at: .milliseconds(1010))?.count == 7)
    }

    @Test func `a transaction without end is cut`() {
        var batcher = Batcher(BatchWindow(quietTime: .seconds(1), maximumDelay: .seconds(2), maximumChanges: 4))
        for _ in 0..<15 { batcher.add(change("1"), at: .zero) }
        #expect(batcher.due(at: .zero) == nil)
        batcher.add(change("1"), at: .zero)
        #expect(batcher.due(at: .zero)?.count == 16)
    }
}
