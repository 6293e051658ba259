import Foundation
import TestSupport
import Testing

/// Rules of the project that a program can check. Each failure states what to do instead. No rule limits lengths.
@Suite(.within(minutes: 10)) struct TidyTests {
    static let house = House()
    private static let names = house.names

    @Test func `the data plane imports no Foundation and starts no tasks`() {
        for file in Self.house.sources where House.dataPlane.contains(file.room) {
            for line in file.code {
                if line.text.holdsAny("import Foundation", "import Dispatch") {
                    Issue.record("\(file.path):\(line.number): use Glibc, or move this to the control plane")
                }
                if line.text.holdsAny("Task {", "Task.detached") {
                    Issue.record(
                        "\(file.path):\(line.number): threads that own what they touch; batches through a mailbox")
                }
            }
        }
    }

    /// Checks which code closes descriptors by number. In another thread's descriptor table, the number belongs to
    /// another file.
    @Test func `no object closes a descriptor at its end but by its owner`() {
        let owner = "Sources/base/System/DescriptorTable.swift"
        for file in Self.house.sources where file.path != owner && !file.path.hasPrefix("Sources/app/") {
            let text = file.lines.map(\.text).joined(separator: "\n")
            for body in text.matches(of: /deinit \{(?:[^}]*?)\bclose\([a-z]/) {
                Issue.record("\(file.path): keep the descriptor in an OwnedDescriptor (\(body.output.prefix(80)))")
            }
        }
    }

    @Test func `every unsafe expression says why it is safe`() {
        for file in Self.house.sources {
            var lastReason = -1000
            var lastUnsafe = -1000
            for line in file.lines {
                if line.text.holdsAny("SAFETY:", "as above") { lastReason = line.number }
                guard line.isCode, line.text.holds("unsafe"), line.text.contains(/\bunsafe\b/) else { continue }
                // One comment may explain several lines that follow each other closely.
                let isExplained =
                    line.number - lastReason <= 12 || (lastUnsafe - lastReason >= 0 && line.number - lastUnsafe <= 6)
                #expect(isExplained, "\(file.path):\(line.number): say above it, after // SAFETY:, what makes it safe")
                if isExplained { lastUnsafe = line.number }
            }
        }
    }

    @Test func `arrows between rooms are those of the table`() throws {
        let table = try #require(Self.house.table)
        let manifest = Self.house.text("Package.swift")
        for (room, mayImport) in table {
            for file in Self.house.sources where file.room == room {
                for line in file.code where line.text.holds("import ") {
                    guard let match = line.text.firstMatch(of: /^(?:@testable |public |package )?import (\w+)/) else {
                        continue
                    }
                    let imported = String(match.1)
                    guard table[imported] != nil else { continue }
                    #expect(
                        mayImport.contains(imported),
                        "\(file.path):\(line.number): \(room) may not see \(imported); see Sources/README.md")
                }
            }
            #expect(manifest.contains("\"\(room)\""), "\(room) is in the table and not in Package.swift")
        }
    }

    @Test func `every folder of a wing is a room of the table, and every room has a folder`() throws {
        let table = try #require(Self.house.table)
        #expect(table.keys.sorted() == Self.house.rooms.sorted(), "keep Sources/README.md true")
        #expect(Set(Self.house.wings) == Set(Self.house.folders("Sources")), "keep Sources/README.md true")
        for wing in Self.house.wings {
            let page = Self.house.text("Sources/\(wing)/README.md")
            for room in Self.house.folders("Sources/" + wing) {
                #expect(page.contains("`\(room)`"), "Sources/\(wing)/README.md does not say what \(room) is")
            }
        }
    }

    @Test func `a room sees rooms of its own wing and of wings further up`() throws {
        let table = try #require(Self.house.table)
        let wings = Self.house.wings
        var wing: [String: Int] = [:]
        for (number, name) in wings.enumerated() {
            for room in Self.house.folders("Sources/" + name) { wing[room] = number }
        }
        #expect(wings.first == "base" && wing.count == table.count)
        for (room, mayImport) in table {
            let own = try #require(wing[room])
            for imported in mayImport.compactMap({ wing[$0] }) {
                #expect(imported <= own, "\(room) is in \(wings[own]), which may not see \(wings[imported])")
            }
        }
    }

    @Test(arguments: ["Sources/README.md", "Sources/rules/Policy/SECURITY.md", "CONTRIBUTING.md"])
    func `what pages for people name is there`(page: String) {
        let (house, names, code) = (Self.house, Self.names, Self.house.code)
        for quoted in house.text(page).matches(of: /`([A-Za-z+]+(?:\/[A-Za-z+]+)*(?:\.swift|\/)?)`/).map({
            String($0.1)
        }) {
            if quoted.contains("ROOM") { continue }
            if quoted.contains("/") {
                let isThere = (["", "Sources/"] + house.wings.map { "Sources/\($0)/" }).contains { folder in
                    house.exists(folder + quoted) || house.exists(folder + quoted + ".swift")
                        || house.declares(quoted.split(separator: "/").map(String.init), below: folder)
                }
                #expect(isThere, "\(page): `\(quoted)` is not there")
            } else if quoted.hasSuffix(".swift") {
                let isThere = code.contains { $0.hasSuffix("/" + quoted) }
                #expect(isThere, "\(page): no file is called `\(quoted)`")
            } else if quoted.first?.isUppercase == true, quoted.contains(where: \.isLowercase) {
                let isKnown = names.contains(quoted)
                #expect(isKnown, "\(page): nothing is called `\(quoted)`")
            }
        }
    }

    @Test func `a paragraph of a page has at most five lines`() {
        let pages = Self.house.allText.filter { $0.hasSuffix(".md") && $0 != "CHANGELOG.md" && !$0.hasPrefix("Tests/") }
        #expect(pages.count > 30)
        for page in pages {
            var (lines, isCode) = (0, false)
            for (index, line) in Self.house.text(page).split(separator: "\n", omittingEmptySubsequences: false)
                .enumerated()
            {
                if line.trimmingPrefix(#/ */#).hasPrefix("```") {
                    (lines, isCode) = (0, !isCode)
                    continue
                }
                let begins = line.prefixMatch(of: #/\s*(?:[*-]|\d+\.) /#) != nil
                let isText = !isCode && !line.isEmpty && line.prefixMatch(of: /[#|<>`]/) == nil
                lines = isText ? (begins ? 1 : lines + 1) : 0
                #expect(lines <= 5, "\(page):\(index + 1): make two paragraphs or a list of it")
            }
        }
    }

    /// Checks the first words of doc comments. A comment that is read alone, for example in a tool tip, must begin with
    /// the thing or its verb.
    @Test func `doc comments begin with the thing or with what it does`() {
        let opening =
            /^ *\/\/\/ (What|Who|Whoever|Whose|Whom|Where|Wherever|Those|That|These|This|As|So|Such|Of|Nobody|Nothing|It|Its|They|Them|Their|Which|Whatever|Whether|How|When|Not|He|His|There|Also|By|From|For|To)\b/
        for file in Self.house.sources {
            var isInside = false
            for line in file.lines {
                let isComment = line.text.drop { $0 == " " }.hasPrefix("///")
                defer { isInside = isComment }
                guard isComment, !isInside else { continue }
                #expect(
                    line.text.firstMatch(of: opening) == nil,
                    "\(file.path):\(line.number): begin with a noun (“Offset of …”) or a verb (“Returns …”)")
            }
        }
    }

    @Test func `every folder of tests is a target, so that its tests run`() {
        let manifest = Self.house.text("Package.swift")
        for folder in Self.house.folders("Tests") where folder.hasSuffix("Tests") {
            let room = folder.dropLast("Tests".count)
            #expect(
                manifest.contains("tests(of: \"\(room)\"") || manifest.contains("of: \"\(room)\","),
                "Tests/\(folder) is no target: add tests(of: \"\(room)\", …) to Package.swift")
        }
    }

    @Test func `every file of sql is carried in the binary`() throws {
        let carried = Self.house.text("Sources/base/CTexts/sql.c")
        for path in Self.house.files("sql") where path.hasSuffix(".sql") {
            #expect(carried.contains("\"../../../\(path)\""), "\(path): add it to Sources/base/CTexts/sql.c")
        }
    }

    /// Checks that tests of the whole program prepare a database as users do. Otherwise, they would not notice what
    /// users lack.
    @Test func `what sql makes no test of the program makes by hand`() throws {
        let making = /CREATE (?:OR REPLACE )?(ROLE|PUBLICATION|SCHEMA|FUNCTION|TABLE) (?:IF NOT EXISTS )?([\w.]+)/
        var made: Set<String> = [
            "ROLE anon", "ROLE authenticated", "ROLE service_role", "PUBLICATION tidewire_internal",
        ]
        made.formUnion(["uid", "role", "email", "jwt"].map { "FUNCTION auth.\($0)" })
        for path in Self.house.files("sql") where path.contains(/^sql\/(0|realtime\/)/) && path.hasSuffix(".sql") {
            for match in Self.house.text(path).matches(of: making) { made.insert("\(match.1) \(match.2)") }
        }
        #expect(made.contains("ROLE tidewire") && made.contains("FUNCTION realtime.send") && made.count > 20)
        // Exempt are tests of databases that another program prepared, and tests that remove objects and create them
        // again.
        let exempt: Set = [
            "Tests/EndToEndTests/TroubleTests.swift", "Tests/ServerTests/Gateway/MembershipRestartTests.swift",
        ]
        let folders = ["EndToEndTests", "tidewireTests", "ServerTests", "Clients"].map { "Tests/" + $0 }
        for path in (folders + ["Sources/bench/Bench", "Sources/evidence/Rehearsal"]).flatMap(Self.house.files) {
            guard path.hasSuffix(".swift") || path.hasSuffix(".py"), !exempt.contains(path) else { continue }
            let text = Self.house.text(path)
            guard text.holds("CREATE ") else { continue }
            for match in text.matches(of: making) where made.contains("\(match.1) \(match.2)") {
                Issue.record("\(path): \(match.0): apply the file of sql/ that makes it (TestSupport/Foundation.swift)")
            }
            #expect(
                !text.contains(/ALTER PUBLICATION tidewire_internal SET/), "\(path): sql/030_publication.sql says how")
        }
    }

    @Test func `no order and no number comes from hashes that differ from process to process`() {
        for file in Self.house.sources {
            for line in file.code where line.text.holdsAny("hashValue", "Hasher(") {
                #expect(
                    !line.text.contains(/\bhashValue\b|\bHasher\(/),
                    "\(file.path):\(line.number): KeyHash, with a seed that is passed in")
            }
        }
    }

    @Test func `every Swift example is compiled`() {
        let compiled = Self.spaced(Self.house.text(Self.compiledExamples))
        var (examples, ofArticles) = (0, 0)
        let sources = Self.house.files("Sources").filter { $0.hasPrefix("Sources/app/TidewireClient") }
        let pages = sources + ["README.md"] + Self.house.files("docs")
        for page in pages {
            let text = Self.house.text(page).replacing(/(?m)^ *\/\/\/ ?/, with: "")
            for part in text.split(separator: "```swift\n").dropFirst() {
                let example = part.prefix(upTo: part.firstRange(of: "```")?.lowerBound ?? part.endIndex)
                examples += 1
                if page.contains(".docc/") { ofArticles += 1 }
                #expect(
                    compiled.contains(Self.spaced(String(example))),
                    "\(page): \(Self.compiledExamples) has no \(example)")
            }
        }
        #expect(examples >= 36 && ofArticles >= 24)
    }

    /// File with the code of apps that pages and comments show.
    private static let compiledExamples = "Tests/TidewireClientTests/DocumentedExamples.swift"

    private static func spaced(_ text: String) -> String {
        text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
    }

    /// Checks that commands read logs with the masks with which they were opened. Only code that evaluates policies
    /// without showing rows may read all values.
    @Test func `no command sees what is masked`() {
        for file in Self.house.sources where ["tidewire", "Console"].contains(file.room) {
            for line in file.code where line.text.holdsAny("@_spi(Judging)", "Masking.nothing") {
                Issue.record("\(file.path):\(line.number): Arguments.historyLog gives what may be shown")
            }
        }
    }

    /// Checks tests with parallel work. A suite inside another suite has the outer suite's time limit.
    @Test func `tests that do several things at once have threads of their own for them`() {
        // A suspended test waits for a thread of the pool, and other tests block these threads for longer than a
        // suite's time limit.
        // The documented examples are code of apps. A test runs them on a thread of its own.
        let tasks = /withTaskGroup|\basync let\b|\bTask(\.detached)? \{|@MainActor (@Suite|@Test|struct)/
        for path in Self.house.files("Tests") where path.hasSuffix(".swift") && !path.hasPrefix("Tests/TidyTests/") {
            let text = Self.house.text(path)
            guard text.holdsAny("withTaskGroup", "async let", "Task", "@MainActor") else { continue }
            if path == Self.compiledExamples { continue }
            #expect(text.firstMatch(of: tasks) == nil, "\(path): use `together`, or `onThisThread`")
        }
    }

    @Test func `programs are started by the house's own means`() {
        for path in Self.house.files("Tests") where path.hasSuffix(".swift") && !path.hasPrefix("Tests/TidyTests/") {
            let text = Self.house.text(path)
            guard text.holds("Process()") else { continue }
            #expect(text.firstMatch(of: /\bProcess\(\)/) == nil, "\(path): use `said`, or `ChildProcess`")
        }
    }

    @Test func `every suite says how long its tests may run`() {
        for path in Self.house.files("Tests") where path.hasSuffix(".swift") {
            let text = Self.house.text(path)
            guard text.holds("@Test") else { continue }
            for line in text.split(separator: "\n")
            where line.hasPrefix("@Suite") || (line.hasPrefix("struct ") && line.contains(/^struct \w+Tests\b/)) {
                #expect(line.contains(".within(minutes:") || line.contains(".inChain(minutes:"), "\(path): \(line)")
            }
        }
    }

    @Test func `nothing is left for later in the sources`() {
        for file in Self.house.sources {
            for line in file.lines where line.text.holdsAny("FIXME", "TODO", "XXX", "HACK") {
                let mark = line.text.firstMatch(of: /\b(FIXME|TODO|XXX|HACK)\b/)
                #expect(mark == nil, "\(file.path):\(line.number): do it, or say in the changelog that it is not done")
            }
        }
    }

    @Test func `no line ends in blanks and no file speaks of one machine`() {
        for path in Self.house.allText {
            let text = Self.house.text(path)
            let suspicious = [" \n", "\t\n"] + ["work", "root", "farm"].map { "/\($0)/" }
            guard suspicious.contains(where: text.holds) else { continue }
            for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
                #expect(!line.hasSuffix(" ") && !line.hasSuffix("\t"), "\(path):\(index + 1): trailing blank")
                #expect(
                    line.firstMatch(of: /\/(work|root|farm)\//) == nil,
                    "\(path):\(index + 1): a path of one machine")
            }
        }
    }

    @Test func `the changelog begins with what is not released`() {
        let heads = Self.house.text("CHANGELOG.md").split(separator: "\n").filter { $0.hasPrefix("## ") }
        #expect(heads.first == "## Unreleased", "CHANGELOG.md always has an Unreleased head")
    }

    @Test func `changelog and upgrading page have the version that the program prints`() throws {
        let product = Self.house.text("Sources/hub/Settings/Product.swift")
        let version = try #require(product.firstMatch(of: /static let version = "((\d+\.\d+)\.\d+)"/))
        #expect(Self.house.text("CHANGELOG.md").contains("\n## \(version.1)\n"))
        #expect(Self.house.text("UPGRADING.md").contains("\n### \(version.2)\n"))
    }

    @Test func `top level holds what belongs there`() throws {
        let allowed: Set = [
            "Package.swift", "Sources", "Tests", "sql", "deploy", "docs", "README.md", "CHANGELOG.md", "LICENSE",
            "CONTRIBUTING.md", "SECURITY.md", "UPGRADING.md", ".ci", ".github", ".gitignore", ".swift-format",
        ]
        let unknown = Self.house.entries("").filter {
            !allowed.contains($0) && ![".git", ".build", ".tidewire"].contains($0)
        }
        #expect(unknown.isEmpty, "each of these needs a reason, or another place")
    }

    @Test func `what is promised names the tests that try to break it`() throws {
        let promised = try #require(
            Self.house.text("docs/delivery.md").split(separator: "## The promises", maxSplits: 1).last?
                .split(separator: "\n## ", maxSplits: 1).first)
        let promises = promised.split(separator: "\n* ").dropFirst()
        #expect(promises.count >= 12)
        for promise in promises {
            let links = promise.matches(of: /\[([^\]]+)\]\(\.\.\/(Tests\/[^)]+)\)/)
            #expect(!links.isEmpty, "\(promise.prefix(60)): name a test that tries to break it, and its file")
            for link in links {
                let file = Self.house.text(String(link.2))
                let name = link.1.split(whereSeparator: \.isWhitespace).joined(separator: " ")
                #expect(file.contains("`\(name)`") || file.contains("\"\(name)\""), "\(link.2) has no test \(name)")
            }
        }
    }

    @Test func `what clients are told by code stands in the pages`() {
        let codes = Self.house.text("Sources/wire/Protocol/ClientText.swift").matches(of: /= "([A-Z][A-Za-z]+)"/).map {
            $0.1
        }
        #expect(codes.count > 20)
        let page = Self.house.text("docs/protocol.md")
        for code in codes { #expect(page.contains("`\(code)`"), "docs/protocol.md lacks \(code)") }
    }
}
