import Diagnostics
import Settings
import System
import WebSocket

/// Request for a part of an answer that is too large for one response.
public struct AnswerPart: Sendable, Equatable {
    public let name: String
    /// Number of bytes of the answer that precede this part.
    public let start: UInt64

    public init(_ items: [HTTPQueryItem]) throws(LogQuestion.Refusal) {
        var (name, start): (String?, UInt64?) = (nil, 0)
        for item in items {
            switch item.name {
            case "name": name = item.value
            case "from": start = UInt64(item.value)
            default: throw LogQuestion.Refusal(reason: "a part is asked with name and from")
            }
        }
        guard let name, AnswerSpool.isName(name), let start else {
            throw LogQuestion.Refusal(reason: "a part is asked with the name of its answer, and from where on")
        }
        (self.name, self.start) = (name, start)
    }
}

/// Files with answers that are too large for one response, beside their log. A file is deleted when its end has been
/// fetched, or after `Limits.answerLifetime`.
struct AnswerSpool {
    static let partHeader = "tidewire-answer"
    static let sizeHeader = "tidewire-answer-bytes"
    private static let start = "question-"

    let directory: DiskDirectory

    init(besideLog path: String) throws(SystemError) { directory = try DiskDirectory(Directories.parent(of: path)) }

    static func name(at now: Int64) -> String {
        let name = "\(start)\(now)-\(UUIDText.random())"
        assert(isName(name), "an answer has a name by which its parts can be asked for")
        return name
    }

    static func isName(_ text: String) -> Bool {
        text.hasPrefix(start) && text.utf8.count < 100
            && text.utf8.allSatisfy { UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0 || 48...57 ~= $0 || $0 == 45 }
    }

    /// Returns the reason, as a text, why no further answer can be kept as a file; nil if one can.
    func obstacle() throws(SystemError) -> String? {
        guard try names().count < Limits.maximumKeptAnswers else {
            return "other large answers are being fetched: try again in some minutes, or ask for less"
        }
        guard try directory.freeBytes() > 2 * UInt64(Limits.maximumAnswerBytes) else {
            return "there is too little room on the hub's disk for an answer of that size: ask for less"
        }
        return nil
    }

    private func names() throws(SystemError) -> [String] { try directory.names().filter { $0.hasPrefix(Self.start) } }

    // MARK: Parts

    func part(_ part: AnswerPart) -> HTTPResponse {
        guard let file = try? directory.open(part.name, for: .reading), let size = try? file.size() else {
            return .message(.notFound, "that answer is not kept any more: ask again")
        }
        guard part.start < size else { return .message(.badRequest, "the answer has \(size) bytes") }
        let count = Int(min(size - part.start, UInt64(Limits.maximumQuestionBytes)))
        assert(count > 0 && count <= Limits.maximumQuestionBytes, "a part has bytes, and fits into a response")
        guard let bytes = try? file.bytes(at: part.start, count: count), bytes.count == count else {
            return TenantsAPI.failed("the answer cannot be read")
        }
        if part.start + UInt64(count) == size { remove(part.name) }
        var response = HTTPResponse(.ok, contentType: "application/octet-stream", body: bytes)
        response.headers.append(HTTPHeader("cache-control", "no-store"))
        return response
    }

    // MARK: Removal

    func remove(_ name: String) { try? directory.remove(name) }

    /// Removes answers that were not fetched in time, and files that an ended process left. Returns true if some files
    /// remain that must be removed later.
    func sweep(at now: Int64) -> Bool {
        var isLeft = false
        for name in (try? names()) ?? [] {
            let made = Int64(name.dropFirst(Self.start.count).prefix { $0 != "-" }) ?? 0
            if now - made < Limits.answerLifetime.wholeSeconds, made <= now + 60 {
                isLeft = true
            } else if Directories.isDirectory("\(directory.path)/\(name)") {
                try? Directories.removeAll("\(directory.path)/\(name)")
            } else {
                remove(name)
            }
        }
        return isLeft
    }
}
