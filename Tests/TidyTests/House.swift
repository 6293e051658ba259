import Foundation

/// Files of the project, for the tidy tests.
struct House: Sendable {
    struct Line: Sendable {
        let number: Int
        let text: String
        /// True if the line is neither a comment nor empty.
        let isCode: Bool
    }

    struct File: Sendable {
        let path: String
        let room: String
        let wing: String
        let lines: [Line]
        var code: [Line] { lines.filter(\.isCode) }
    }

    static let dataPlane: Set = [
        "Bytes", "System", "Crypto", "Diagnostics", "Postgres", "Change", "Replication", "EventLog",
        "Policy", "Matching", "Channels", "Protocol", "WebSocket", "Net", "Auth",
    ]

    let root: URL

    /// All Swift files below Sources.
    let sources: [File]

    init() {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        self.root = root
        sources = Self.files("Sources", below: root).filter { $0.hasSuffix(".swift") }.map { path in
            let folders = path.split(separator: "/").map(String.init)
            let lines = Self.text(path, below: root).utf8.split(separator: 0x0a, omittingEmptySubsequences: false)
            return File(
                path: path, room: folders[2], wing: folders[1],
                lines: lines.enumerated().map { index, line in
                    let code = line.drop { $0 == UInt8(ascii: " ") }
                    return Line(
                        number: index + 1, text: String(Substring(line)),
                        isCode: !code.isEmpty && !code.starts(with: "//".utf8))
                })
        }
    }

    func text(_ path: String) -> String { Self.text(path, below: root) }

    private static func text(_ path: String, below root: URL) -> String {
        (try? String(contentsOf: root.appendingPathComponent(path), encoding: .utf8)) ?? ""
    }

    func entries(_ path: String) -> [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: root.appendingPathComponent(path).path)) ?? []
    }

    func folders(_ path: String) -> [String] {
        entries(path).filter { entry in
            var isFolder: ObjCBool = false
            let full = root.appendingPathComponent(path).appendingPathComponent(entry).path
            return FileManager.default.fileExists(atPath: full, isDirectory: &isFolder) && isFolder.boolValue
        }
    }

    /// Wings in the order of their imports: the rooms of each may import rooms of the same wing and of those before it.
    var wings: [String] {
        text("Sources/README.md").matches(of: /(?m)^\| \[(\w+)\]\(\w+\/README\.md\)/).map { String($0.1) }
    }

    /// Rooms of all wings.
    var rooms: [String] { folders("Sources").flatMap { folders("Sources/" + $0) } }

    /// Returns every file below a folder, by its path from the root.
    func files(_ path: String) -> [String] { Self.files(path, below: root) }

    private static func files(_ path: String, below root: URL) -> [String] {
        let found = FileManager.default.subpaths(atPath: root.appendingPathComponent(path).path) ?? []
        return found.map { path + "/" + $0 }.filter { $0.contains(".") && !$0.contains("/.build") }.sorted()
    }

    func exists(_ path: String) -> Bool {
        FileManager.default.fileExists(atPath: root.appendingPathComponent(path).path)
    }

    /// True if a file of a folder declares a type of that name. The names before the last one lead to the folder.
    func declares(_ path: [String], below folder: String) -> Bool {
        guard let name = path.last else { return false }
        let place = folder + path.dropLast().joined(separator: "/")
        return files(place).contains { path in
            let text = text(path)
            return text.holds(name) && Self.declared(in: text).contains(name)
        }
    }

    /// All Swift files.
    var code: [String] { ["Sources", "Tests"].flatMap(files).filter { $0.hasSuffix(".swift") } }

    /// All names in the code: rooms, files, types, cases, functions.
    var names: Set<String> {
        code.reduce(into: Set(rooms + folders("Tests"))) { names, path in
            for word in text(path).utf8.split(whereSeparator: { !Self.isOfWord($0) }) {
                names.insert(String(word) ?? "")
            }
        }
    }

    private static func isOfWord(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"): true
        default: false
        }
    }

    private static func declared(in text: String) -> Set<String> {
        Set(text.matches(of: /\b(?:struct|class|enum|protocol|typealias) (\w+)/).map { String($0.1) })
    }

    var allText: [String] {
        let kinds = [".swift", ".md", ".sql", ".c", ".h", ".modulemap"]
        let below = ["Sources", "Tests", "sql", "docs"].flatMap(files).filter { path in
            kinds.contains { path.hasSuffix($0) }
        }
        return below + [
            "Package.swift", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "UPGRADING.md",
            "deploy/test",
            "deploy/quickstart", "Tests/Tools/fuzz",
            "Tests/Tools/autobahn",
        ]
    }

    /// Table of rooms in Sources/README.md: `| Room | responsibility | may import | … |`.
    var table: [String: Set<String>]? {
        var table: [String: Set<String>] = [:]
        for line in text("Sources/README.md").split(separator: "\n") where line.hasPrefix("| `") {
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            guard cells.count >= 3 else { return nil }
            let mayImport = cells[2].matches(of: /[\w-]+/).map { String($0.0) }
            for room in cells[0].matches(of: /`([\w-]+)`/) { table[String(room.1)] = Set(mayImport) }
        }
        return table.isEmpty ? nil : table
    }
}

extension String {
    /// True if the text contains the part. The function compares bytes, which is much faster than comparing characters.
    func holds(_ part: String) -> Bool { strstr(self, part) != nil }

    func holdsAny(_ parts: String...) -> Bool { parts.contains { holds($0) } }
}
