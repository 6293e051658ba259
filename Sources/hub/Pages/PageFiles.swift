import Bytes
import CPages
import Crypto
import WebSocket

/// File of the web console.
public struct PageFile: Sendable {
    public let name: String
    public let bytes: [UInt8]
    /// The same bytes with the content coding gzip; nil if that would not make them smaller.
    let compressed: [UInt8]?

    fileprivate init(_ name: String, _ bytes: [UInt8]) {
        let compressed = Gzip.compress(bytes.rawBytes)
        (self.name, self.bytes) = (name, bytes)
        self.compressed = compressed.count < bytes.count ? compressed : nil
    }

    /// Media type, by the name's ending.
    public var contentType: String {
        switch name.split(separator: ".").last {
        case "html": "text/html; charset=utf-8"
        case "js": "text/javascript; charset=utf-8"
        case "css": "text/css; charset=utf-8"
        case "svg": "image/svg+xml"
        case "woff2": "font/woff2"
        default: "text/plain; charset=utf-8"
        }
    }
}

/// All files of the web console, as they are served.
///
/// Their addresses contain a digest of all of them, so browsers may keep them for good. Only the first page has a fixed
/// address. In it, `DIGEST` stands for the digest.
public enum PageFiles {
    /// Files by name, without the first page.
    public static let all: [String: PageFile] = {
        let files = embedded.filter { !$0.name.hasSuffix(".js") && $0.name != firstName }
            .map { PageFile($0.name, $0.bytes) }
        return Dictionary(uniqueKeysWithValues: (files + [script]).map { ($0.name, $0) })
    }()

    /// Digest of all files, in their addresses.
    public static let digest: String = {
        var whole: [UInt8] = []
        for file in embedded {
            whole += Array(file.name.utf8) + [0]
            whole += SHA256.digest(of: file.bytes.span)
        }
        return String(Base64URL.encode(SHA256.digest(of: whole.span).span).prefix(16))
    }()

    /// Page that loads all other files.
    public static let first = PageFile(
        firstName, Array(text(firstName).replacing("DIGEST", with: digest).utf8))

    static let firstName = "index.html"
    static let scriptName = "console.js"

    /// All scripts as one module, so that a browser loads one file, and a report can contain it.
    static let script = PageFile(
        scriptName,
        Array(embedded.filter { $0.name.hasSuffix(".js") }.map { joinable(text($0.name)) }.joined().utf8))

    /// Returns the lines of a module that others can follow in the same file: without its imports, the word `export`,
    /// comments on lines of their own and types, and with tabs. Modules must keep an import on one line.
    static func joinable(_ module: String) -> String {
        var lines: [String] = []
        var isInComment = false
        for line in module.split(separator: "\n") {
            let text = line.drop { $0 == " " }
            if isInComment || text.hasPrefix("/**") {
                isInComment = !text.hasSuffix("*/")
            } else if text.hasPrefix("//") || line.hasPrefix("import ") {
                continue
            } else {
                let depth = (line.count - text.count) / 2
                let code = line.hasPrefix("export ") ? text.dropFirst("export ".count) : text
                lines.append(String(repeating: "\t", count: depth) + withoutTypes(code))
            }
        }
        return lines.joined(separator: "\n") + "\n"
    }

    /// Returns the line without comments that state a type.
    private static func withoutTypes(_ line: Substring) -> String {
        var line = String(line)
        while let start = line.firstRange(of: "/** @type "), let end = line[start.upperBound...].firstRange(of: "*/ ") {
            line.removeSubrange(start.lowerBound..<end.upperBound)
        }
        return line
    }

    /// Returns the text of an embedded file.
    static func text(_ name: String) -> String {
        let file = embedded.first { $0.name == name }
        precondition(file != nil, "the program carries \(name)")
        return String(decoding: file?.bytes ?? [], as: UTF8.self)
    }

    /// Files as they are in the source. Scripts are in the order in which they use each other.
    static let embedded: [(name: String, bytes: [UInt8])] = {
        var count = 0
        // SAFETY: the files are constants of the program, as many as it says, each with the length it says and a name that
        // ends with a zero byte.
        guard let pages = unsafe tw_pages(&count) else { return [] }
        return (0..<count).map { index in
            let page = unsafe pages[index]
            let bytes = unsafe Array(UnsafeBufferPointer(start: page.bytes, count: page.length))
            return (unsafe String(cString: page.name), bytes)
        }
    }()
}
