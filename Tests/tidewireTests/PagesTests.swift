import Foundation
import Settings
import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

/// Tests of README and the pages of `docs/`. Their examples must run, or at least be accepted by the program. Every
/// name on them must exist, and their links must work.
@Suite(.within(minutes: 20)) struct PagesTests {
    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
    static let pages: [Page] = {
        let found = (try? FileManager.default.contentsOfDirectory(atPath: root.path + "/docs")) ?? []
        return (["README.md"] + found.filter { $0.hasSuffix(".md") }.sorted().map { "docs/" + $0 }).map(page)
    }()
    private static var blocks: [Page.Block] { pages.flatMap(\.blocks) }

    private static func page(_ path: String) -> Page { Page(path: path, text: text(path)) }

    private static func text(_ path: String) -> String {
        (try? String(contentsOf: root.appending(path: path), encoding: .utf8)) ?? ""
    }

    private func blocks(_ language: String) -> [Page.Block] { Self.blocks.filter { $0.language == language } }

    @Test func `there are pages, and the index lists each`() {
        #expect(Self.pages.count > 20)
        let index = Self.page("docs/README.md")
        for page in Self.pages.dropFirst() where page.path != index.path {
            #expect(index.links.contains(String(page.path.dropFirst("docs/".count))), "docs/README.md lacks \(page)")
        }
    }

    @Test func `README is what a newcomer reads`() { #expect(Self.text("README.md").utf8.count < 8_000) }

    @Test func `each block says what it is, and whether it runs`() {
        for block in Self.blocks {
            switch block.language {
            case "sh", "sql": #expect(block.note != nil, "\(block): <!-- runs -->, or <!-- not run: why --> above it")
            case "text": #expect(block.note != nil, "\(block): <!-- not run: whose output it is --> above it")
            case "json", "conf", "console", "js", "python", "swift": break
            default: Issue.record("\(block): \"\(block.language)\" is no language that a test knows")
            }
        }
    }

    @Test(arguments: pages) func `each page has something that is tried, or says why not`(page: Page) {
        let isTried = page.blocks.contains { block in
            if case .runs = block.note {
                true
            } else {
                ["json", "conf", "console", "js", "python", "swift"].contains(block.language)
            }
        }
        #expect(isTried || page.prose.contains(/<!-- nothing to run: .+ -->/), "\(page)")
    }

    @Test func `commands are such as the program takes`() throws {
        var count = 0
        for block in blocks("sh") {
            for words in ShellCommands(block.text) where words[0] == "tidewire" || words[0].hasSuffix("/tidewire") {
                count += 1
                expectTaken(Array(words.dropFirst()), "\(block): \(words.joined(separator: " "))")
            }
        }
        #expect(count > 50)
    }

    private func expectTaken(_ words: [String], _ place: String) {
        do throws(UsageError) {
            let found = try Invocation.find(words.drop { $0 == "help" }, among: allCommands)
            if let other = found.command.otherProgram {
                #expect(Self.commands(of: other).contains(found.rest.first ?? ""), "\(place)")
            }
            if words.first == "help" || found.command.otherProgram != nil { return }
            _ = try ArgumentParser.parse(
                found.rest, options: found.command.allOptions, operands: found.command.operands)
        } catch {
            Issue.record("\(place): \(error.message)")
        }
    }

    /// Returns the commands that another built program lists: the second words of `bench ingest` and similar commands.
    private static func commands(of program: String) -> Set<String> {
        let output = TemporaryDirectory.make("pages") + "/commands"
        _ = try? ChildProcess([PageStage.programs + "/" + program, "--commands"], output: output)
            .wait(milliseconds: 180_000)
        let said = (try? String(contentsOfFile: output, encoding: .utf8)) ?? ""
        return Set(said.split(whereSeparator: \.isWhitespace).map(String.init))
    }

    /// Checks commands on the pages. Words in capitals and `…` stand for the reader's own values.
    @Test(arguments: pages) func `commands that are named exist`(page: Page) {
        for quoted in page.quoted where quoted.hasPrefix("tidewire ") {
            for words in ShellCommands(quoted) where words[0] == "tidewire" {
                expectNamed(Array(words.dropFirst()), "\(page): \(quoted)")
            }
        }
        for quoted in page.quoted where quoted.hasPrefix("--") {
            let name = String(quoted.dropFirst(2).prefix { $0.isLetter || $0 == "-" })
            #expect(Self.options.contains(name), "\(page): no command has --\(name)")
        }
    }

    private func expectNamed(_ words: [String], _ place: String) {
        let isPlaceholder = { (word: String) in word.allSatisfy { $0.isUppercase } || word == "…" }
        guard let first = words.first, !isPlaceholder(first), first != "help", !first.hasPrefix("-") else { return }
        do throws(UsageError) {
            let found = try Invocation.find(words[...], among: allCommands)
            let options = Set(found.command.allOptions.map { "--" + $0.name })
            for word in found.rest where word.hasPrefix("--") && found.command.otherProgram == nil {
                #expect(options.contains(String(word.prefix { $0 != "=" })), "\(place)")
            }
        } catch {
            Issue.record("\(place): \(error.message)")
        }
    }

    private static let commands: [(path: [String], command: any Command)] = below(allCommands, [])
    private static let options = Set(commands.flatMap { $0.command.allOptions.map(\.name) })

    private static func below(_ all: [any Command], _ path: [String]) -> [(path: [String], command: any Command)] {
        all.flatMap { [(path + [$0.name], $0)] + below($0.subcommands, path + [$0.name]) }
    }

    @Test func `each command has its row`() {
        let rows = Self.text("docs/commands.md").split(separator: "\n").filter { $0.hasPrefix("| `") }
        for (path, _) in Self.commands {
            let isThere = rows.contains { row in
                row.split(separator: "`", omittingEmptySubsequences: false).enumerated().contains { index, part in
                    let words = part.split { !$0.isLetter && $0 != "-" }.map(String.init)
                    return index % 2 == 1 && words.first == path[0] && words.contains(path[path.count - 1])
                }
            }
            #expect(isThere, "docs/commands.md lacks a row for \(path.joined(separator: " "))")
        }
    }

    @Test func `each setting has its row, with what it means`() {
        let page = Self.text("docs/settings.md")
        for setting in Setting.all {
            let row = page.split(separator: "\n").first { $0.hasPrefix("| `\(setting.name)` |") }
            let summary = setting.summary.replacing("|", with: "\\|")
            #expect(row?.contains(summary) == true, "docs/settings.md: | `\(setting.name)` | … | \(summary) |")
        }
        let named = page.matches(of: /(?m)^\| `(\w+)` \|/).map { String($0.1) }
        #expect(Set(named) == Set(Setting.all.map(\.name)))
    }

    /// Names that are only in PostgreSQL's own manual.
    private static let ofPostgreSQL: Set = ["sync_replication_slots", "publish_generated_columns"]

    /// Checks names with underscores: settings, metrics, roles, functions, claims and codes. Each must be somewhere in
    /// the sources.
    @Test func `what is named exists`() {
        let settings = Set(Setting.all.map(\.environmentName))
        let known = Self.namesOfSources().union(settings).union(Self.ofPostgreSQL)
        #expect(known.contains("catch_up_grace") && !known.contains("catch_up_gracex"))
        for page in Self.pages {
            for name in page.quoted.flatMap({ $0.matches(of: /[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+_?/).map { String($0.0) } })
            // A text such as `sb_publishable_…` is only the beginning of a name.
            where !name.hasSuffix("_") {
                let isKnown = known.contains(name)
                #expect(isKnown, "\(page): nothing is called \(name)")
            }
        }
    }

    private static func namesOfSources() -> Set<String> {
        var names: Set<String> = []
        for folder in ["Sources", "sql", "deploy", "Tests/Clients", "Tests/TidewireClientTests"] {
            for path in FileManager.default.subpaths(atPath: root.path + "/" + folder) ?? [] {
                for word in text(folder + "/" + path).utf8.split(whereSeparator: { !isOfName($0) })
                where word.contains(95) {
                    names.insert(String(decoding: word, as: UTF8.self))
                }
            }
        }
        return names
    }

    private static func isOfName(_ byte: UInt8) -> Bool {
        (48...57).contains(byte) || (65...90).contains(byte) || (97...122).contains(byte) || byte == 95
    }

    @Test func `links lead somewhere`() {
        let others = ["CONTRIBUTING.md", "SECURITY.md", "UPGRADING.md", "CHANGELOG.md", "sql/README.md"].map(Self.page)
        for page in Self.pages + others {
            let folder = page.path.split(separator: "/").dropLast().joined(separator: "/")
            for link in page.links where link.firstMatch(of: /^[a-z]+:/) == nil {
                let parts = link.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
                let target = parts[0].isEmpty ? page.path : Self.resolved(parts[0], in: folder)
                let isThere = FileManager.default.fileExists(atPath: Self.root.appending(path: target).path)
                #expect(isThere, "\(page): \(link)")
                guard parts.count == 2, target.hasSuffix(".md") else { continue }
                #expect(Self.page(target).anchors.contains(parts[1]), "\(page): \(link) is no heading")
            }
        }
    }

    private static func resolved(_ link: String, in folder: String) -> String {
        var parts = folder.split(separator: "/").map(String.init)
        for part in link.split(separator: "/") {
            if part == ".." { _ = parts.popLast() } else if part != "." { parts.append(String(part)) }
        }
        return parts.joined(separator: "/")
    }

    @Test func `JSON is JSON`() {
        for block in blocks("json") {
            #expect(throws: Never.self, "\(block)") { try JSONSerialization.jsonObject(with: Data(block.text.utf8)) }
        }
    }

    @Test func `configuration is such as the hub reads`() async {
        for block in blocks("conf") {
            let result = await run(
                ["config", "--config", "page.conf"], commands: allCommands, files: ["page.conf": block.text])
            #expect(result.exitCode == .ok, "\(block): \(result.errors)")
        }
    }

    @Test func `scripts of other languages can be read`() throws {
        let folder = TemporaryDirectory.make("pages")
        for (language, command) in [
            ("js", ["node", "--check"]),
            ("python", ["python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"]),
        ] {
            guard
                try ChildProcess(["/bin/sh", "-c", "command -v \(command[0])"], output: "/dev/null").wait()
                    == .exited(0)
            else { continue }
            for block in blocks(language) {
                let file = folder + "/block.\(language == "js" ? "mjs" : "py")"
                try block.text.write(toFile: file, atomically: true, encoding: .utf8)
                let output = folder + "/output-\(block.line)"
                let ending = try ChildProcess(
                    ["/usr/bin/env"] + command + [file], output: output
                ).wait(milliseconds: 180_000)
                #expect(
                    ending == .exited(0), "\(block): \((try? String(contentsOfFile: output, encoding: .utf8)) ?? "")")
            }
        }
    }

    /// Checks that the stage adds nothing that a page should state. Otherwise, the gap on the page would not be
    /// noticed.
    @Test func `the stage of pages adds nothing but the reader's application`() throws {
        let application = /CREATE TABLE .+|CREATE POLICY .+|ALTER TABLE \w+ ENABLE ROW LEVEL SECURITY/
        for statement in PageStage.application {
            #expect(statement.wholeMatch(of: application) != nil, "\(statement): a page has to say it")
        }
        let statements = /\b(?:CREATE|ALTER|GRANT|INSERT|UPDATE|DROP|REVOKE) [^"\n]+/
        let others = Self.text("Tests/tidewireTests/PageStage.swift").matches(of: statements).map { String($0.0) }
            .filter { !PageStage.application.contains($0) }
        let known = [
            /CREATE DATABASE .+/, /ALTER ROLE \\w.+/, /ALTER PUBLICATION/, /INSERT INTO orders .+/, /UPDATE orders .+/,
        ]
        for other in others { #expect(known.contains { other.wholeMatch(of: $0) != nil }, "\(other)") }
        #expect(others.count == known.count)
    }

    /// Checks all blocks on one stage, page after page, so that a block may use the results of earlier blocks.
    @Test func `what is said to run runs`() throws {
        let running = Self.blocks.filter { if case .runs = $0.note { true } else { false } }
        #expect(running.count > 30)
        let stage = try PageStage(root: Self.root)
        defer { stage.end() }
        for block in running {
            let failure = block.language == "sql" ? stage.failure(ofSQL: block) : try stage.failure(ofScript: block)
            #expect(failure == nil, "\(block): \(failure ?? "")")
        }
        try expectEachMetricHasItsRow(stage)
    }

    /// Checks that the page has a row with an explanation for each metric of a hub, and no other rows.
    private func expectEachMetricHasItsRow(_ stage: PageStage) throws {
        let page = Self.text("docs/metrics.md")
        var shown: Set<String> = []
        for help in try stage.metrics().split(separator: "\n").compactMap({ $0.wholeMatch(of: /# HELP (\w+) (.*)/) }) {
            let row = page.split(separator: "\n").first { $0.hasPrefix("| `\(help.1)` | ") }
            #expect(row?.contains(help.2) == true, "docs/metrics.md: | `\(help.1)` | … | \(help.2) |")
            shown.insert(String(help.1))
        }
        #expect(shown.count > 100)
        #expect(Set(page.matches(of: /(?m)^\| `(\w+)` \|/).map { String($0.1) }) == shown)
    }
}
