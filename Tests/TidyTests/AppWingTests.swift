import TestSupport
import Testing

/// Rules for the Swift client. Apps import it together with other libraries, and compile it on Apple's systems.
@Suite(.within(minutes: 5)) struct AppWingTests {
    private static let files = House().sources.filter { file in
        ["TidewireClient", "TidewireClientTesting"].contains(file.room) && !file.path.contains("/Deprecated")
    }

    /// Public names at the top level. A name that another library may also use belongs inside one of these types.
    private static let topLevel: Set = [
        "BatchWindow", "ConflictPolicy", "ConflictResolution", "DatedRow", "FilterValue", "JSONValue", "KeyedCounts",
        "LastWriteWins", "LiveBatch", "LiveChange", "LiveChanges", "LiveColumn", "LiveCounts", "LiveFilter",
        "LiveQuery", "LiveRow", "LiveTables", "LocalRow", "LogPosition", "ManualClock", "MemoryHub", "MergedBatch",
        "OfflineWrites", "OptimisticKeys", "OptimisticRows", "PendingWrite", "PostgresNumeric", "RefetchReason",
        "RoomError", "RoomMessageError", "RowChange", "RowImage", "RowVersion", "TableBatch", "TableBinding",
        "Tidewire", "TidewireProblem", "TidewireRoom", "TidewireStorage", "UnreadableRow",
    ]

    @Test func `apps see the listed top-level names and no others`() {
        var found: Set<String> = []
        for file in Self.files {
            for line in file.code {
                let declared = line.text.prefixMatch(
                    of: /public (?:final )?(?:actor|class|enum|func|let|protocol|struct|typealias|var) (\w+)/)
                if let declared { found.insert(String(declared.1)) }
            }
        }
        #expect(found.subtracting(Self.topLevel).isEmpty, "nest these, or make them visible in the package only")
        #expect(Self.topLevel.subtracting(found).isEmpty)
    }

    @Test func `every public declaration of the client has a doc comment`() {
        var checked = 0
        for file in Self.files {
            for (index, line) in file.lines.enumerated() where line.isCode && Self.isPublic(line.text) {
                let above = file.lines[..<index].last { !$0.text.drop { $0 == " " }.hasPrefix("@") }
                let isDocumented = above?.text.drop { $0 == " " }.hasPrefix("///") == true
                checked += 1
                #expect(isDocumented, "\(file.path):\(line.number): \(line.text)")
            }
        }
        #expect(checked > 250)
    }

    private static func isPublic(_ line: String) -> Bool {
        line.holds("public ") && line.prefixMatch(of: /^ *(?:(?:@|nonisolated)\S+ )*public (?!extension)/) != nil
    }

    /// Checks that a build for Apple's systems needs no module of Linux or C.
    @Test func `the client imports what only Linux has for Linux alone`() {
        let modules = /^ *(?:public |@\S+ )*import (?:C[A-Z]\w*|FoundationNetworking|Glibc|Musl)\b/
        var guarded = 0
        for file in Self.files {
            var conditions: [Bool] = []
            for line in file.code {
                let code = line.text.drop { $0 == " " }
                if code.hasPrefix("#if") { conditions.append(code == "#if os(Linux)") }
                if code.hasPrefix("#else"), !conditions.isEmpty { conditions[conditions.count - 1] = false }
                if code.hasPrefix("#endif") { _ = conditions.popLast() }
                guard line.text.firstMatch(of: modules) != nil else { continue }
                guarded += 1
                #expect(conditions.contains(true), "\(file.path):\(line.number): only within #if os(Linux)")
            }
        }
        #expect(guarded > 0)
    }
}
