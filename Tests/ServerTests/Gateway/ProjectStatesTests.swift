import EventLog
import Foundation
import Glibc
import Postgres
import Synchronization
import System
import TestSupport
import Testing

@testable import Diagnostics
@testable import Projects
@testable import Server
@testable import Settings

extension GatewayTraffic {
    /// Tests that no project ever answers another project's clients, whatever happens to names, hosts and states.
    @Suite(.serialized) struct ProjectStatesTests {
        private static func isKnownOutage(_ answer: ProjectCrowd.Answer) -> Bool {
            answer.status == 503 && answer.headers["retry-after"] != nil && answer.project == nil
        }

        @Test func `a project that cannot be started is nobody else's, is seen, and is tried again`() throws {
            let crowd = try ProjectCrowd([(Setting(\.unknownHosts), "main")])
            #expect(try eventually { try crowd.isReady("alpha") && crowd.isReady("beta") })
            try crowd.damage("beta")
            for way in ProjectCrowd.Way.allCases {
                for host in ["beta", "BETA.hub.example:4000"] {
                    let answer = try crowd.ask(way, host: host)
                    #expect(Self.isKnownOutage(answer), "\(way) \(host): \(answer)")
                    #expect(try Self.isKnownOutage(crowd.ask(way, host: host, absolute: true)), "\(way) \(host)")
                }
                #expect(try crowd.ask(way, host: "alpha.hub.example").status == way.served)
                #expect(try crowd.ask(way, host: "nobody.hub.example").status == way.served)
            }
            let all = try crowd.ask("GET /ready HTTP/1.1\r\nHost: h")
            #expect(
                all.status == 200 && all.body.contains(#""projects":3,"projects_not_ready":1,"not_ready":["beta"]"#),
                "\(all)")
            let one = try crowd.ask("GET /ready/beta HTTP/1.1\r\nHost: h")
            #expect(one.status == 503 && one.body.hasPrefix(#"{"ready":false,"state":"failed","#), "\(one)")
            let health = try crowd.administer("GET", "beta", "/health")
            #expect(health.body.contains(#""healthy":false,"db_connected":false"#), "\(health)")
            let metrics = try crowd.ask("GET /metrics HTTP/1.1\r\nHost: h").body
            #expect(metrics.contains("tidewire_project_running{tenant=\"beta\"} 0\n"))
            #expect(metrics.contains("tidewire_replication_connected{tenant=\"beta\"} 0\n"))
            #expect(metrics.contains("tidewire_project_running{tenant=\"alpha\"} 1\n"))
            #expect(metrics.contains("tidewire_project_running 1\n"))
            #expect(try crowd.administer("GET", "beta", "/channels").status == 503)
            try crowd.mend("beta")
            // The project starts, although no client has made a request for it.
            #expect(try eventually { try crowd.isReady("beta") })
            #expect(try crowd.ask(.ping, host: "beta").project == "beta")
        }

        @Test func `the name of a deleted project is nobody's, also after a restart, until there is one again`() throws
        {
            let crowd = try ProjectCrowd()
            for name in ProjectCrowd.others { #expect(try crowd.administer("DELETE", name).status == 204) }
            func check() throws {
                for way in ProjectCrowd.Way.allCases {
                    let answer = try crowd.ask(way, host: "beta.hub.example")
                    #expect([401, 404].contains(answer.status) && answer.project == nil, "\(way) \(answer)")
                    // Only one project is left. Requests for all other hosts reach it, too.
                    #expect(try crowd.ask(way, host: "nobody").status == way.served)
                }
            }
            try check()
            try crowd.stage.restart {}
            try check()
            try crowd.create("beta")
            #expect(try eventually { try crowd.ask(.ping, host: "beta").project == "beta" })
        }

        @Test func `what is done for one project does not wait for another's database`() throws {
            let crowd = try ProjectCrowd()
            let silent = try SilentServer()
            let isDone = Bell()
            let answer = Mutex<ProjectCrowd.Answer?>(nil)
            let body = try crowd.description("alpha").replacing("alpha", with: "gamma").replacing(
                #/"settings":\{[^}]*\}/#,
                with: #""settings":{"database_url":"postgresql://u@127.0.0.1:\#(silent.port)/d?sslmode=disable"}"#)
            #expect(try crowd.administer("PUT", "gamma", body: body).status == 201)
            // The database of `gamma` accepts connections and never answers. The hub gives up dropping the slot only
            // after a timeout.
            #expect(eventually { silent.count > 0 })
            let ending = try BackgroundThread("ending") {
                answer.withLock { $0 = try? crowd.administer("DELETE", "gamma") }
                isDone.ring()
            }
            for _ in 0..<3 {
                #expect(try crowd.administer("POST", "alpha", "/reload").status == 204)
                #expect(try crowd.administer("GET", "beta", "/channels").status == 200)
                #expect(try crowd.administer("GET", "gamma", "/health").status != 500)
            }
            #expect(!isDone.rang, "what is waited for was over before the others were done")
            silent.close()
            ending.join()
            let told = answer.withLock { $0 }
            #expect(told?.status == 204)
        }

        @Test func `a project that starts again knows keys as they were read last`() throws {
            let file = TemporaryDirectory.make("keys") + "/keys"
            func write(_ key: String) throws { try Data("\(key) = anon\n".utf8).write(to: URL(fileURLWithPath: file)) }
            try write("sb_publishable_old")
            let crowd = try ProjectCrowd([(Setting(\.apiKeys), file)])
            func isKnown(_ key: String) throws -> Bool {
                try crowd.ask(
                    "POST /api/broadcast/t/events/e HTTP/1.1\r\nHost: \(ProjectCrowd.own)\r\nAuthorization: Bearer \(key)",
                    body: "{}"
                ).status == 202
            }
            #expect(try isKnown("sb_publishable_old"))
            try write("sb_publishable_new")
            crowd.stage.hub.reload()
            #expect(try isKnown("sb_publishable_new") && !isKnown("sb_publishable_old"))
            try crowd.carryOut("POST", ProjectCrowd.own, "/reload")
            #expect(try eventually { try isKnown("sb_publishable_new") })
            #expect(try !isKnown("sb_publishable_old"))
        }

        @Test func `readers of each project's log obey mask rules as they were read last`() throws {
            let file = TemporaryDirectory.make("rules") + "/rules"
            func write(_ rules: String) throws { try Data(rules.utf8).write(to: URL(fileURLWithPath: file)) }
            try write("notes.body\n")
            let crowd = try ProjectCrowd([(Setting(\.maskRules), file)])
            func rules(_ name: String) throws -> String? {
                let log = try name == ProjectCrowd.own ? crowd.stage.dataDirectory : crowd.directory(name)
                return try MaskRulesFile.read(in: DiskDirectory(log + "/log")).map {
                    String(decoding: $0, as: UTF8.self)
                }
            }
            let all = [ProjectCrowd.own] + ProjectCrowd.others
            for name in all { #expect(try rules(name) == "notes.body\n", "\(name)") }
            try write("notes.*\n")
            crowd.stage.hub.reload()
            for name in all { #expect(try rules(name) == "notes.*\n", "\(name)") }
            try FileManager.default.removeItem(atPath: file)
            crowd.stage.hub.reload()
            for name in all { #expect(try rules(name) == "notes.*\n", "a file that is gone takes no rule away") }
        }

        // MARK: The generator

        private struct Ground {
            let crowd: ProjectCrowd
            var random: SeededRandom
            var damaged: Set<String> = []
            var deleted: Set<String> = []
            /// Project of each log that was seen, by the log's epoch.
            var epochs: [String: String] = [:]
            let standIn: UnknownHosts
            var answers: [String: Int] = [:]
        }

        private static let spellings: [@Sendable (String) -> String] = [
            { $0 }, { $0.uppercased() }, { "\($0).hub.example" }, { "\($0.capitalized).hub.example:4000" },
            { "\($0):80" },
            { "\($0)." }, { "\($0).127.example" },
        ]
        private static let strangers = [
            "nobody", "nobody.alpha", "127.0.0.1:4000", "[::1]:4000", "[::1]", "alphabeta", "h.beta",
        ]

        /// Checks one answer: it must come from the right project.
        private func probe(_ ground: inout Ground, changing name: String?) throws {
            let names = [ProjectCrowd.own] + ProjectCrowd.others
            let meant = Int.random(in: 0..<4, using: &ground.random) == 0 ? nil : ground.random.pick(names)
            let host = meant.map { ground.random.pick(Self.spellings)($0) } ?? ground.random.pick(Self.strangers)
            let way = ground.random.pick(ProjectCrowd.Way.allCases)
            let isAbsolute = Bool.random(using: &ground.random)
            // There is no answer while the hub itself is stopped.
            guard let answer = try? ground.crowd.ask(way, host: host, absolute: isAbsolute) else { return }
            ground.answers["\(way) \(answer.status)", default: 0] += 1
            let what = "\(way) \(host) \(isAbsolute) \(name ?? "") \(answer)"
            let others = ProjectCrowd.others.filter { !ground.deleted.contains($0) }
            let mayStandIn = ground.standIn == .main || others.isEmpty || name != nil
            let mayBeMeant = meant ?? (mayStandIn ? ProjectCrowd.own : nil)
            if let project = answer.project { #expect(project == mayBeMeant, "\(what)") }
            if let epoch = answer.epoch, let mayBeMeant {
                #expect(ground.epochs[epoch, default: mayBeMeant] == mayBeMeant, "\(what)")
                ground.epochs[epoch] = mayBeMeant
            }
            if answer.status == 503 { #expect(answer.headers["retry-after"] != nil, "\(what)") }
            guard let meant, meant != name, name != "" else { return }
            if ground.deleted.contains(meant) {
                #expect([401, 404].contains(answer.status), "\(what)")
            } else if ground.damaged.contains(meant) {
                #expect(answer.status == 503, "\(what)")
            } else {
                #expect([way.served, 503].contains(answer.status), "\(what)")
            }
        }

        private func step(_ ground: inout Ground) throws {
            let crowd = ground.crowd
            let name = ground.random.pick(ProjectCrowd.others)
            let work: @Sendable () throws -> Void
            var (damaged, deleted) = (ground.damaged, ground.deleted)
            var changing = name
            switch Int.random(in: 0..<6, using: &ground.random) {
            case 0:
                // The whole hub restarts. The empty text stands for all names.
                changing = ""
                work = { try crowd.stage.restart {} }
            case _ where deleted.contains(name):
                deleted.remove(name)
                work = { try crowd.create(name) }
            case _ where damaged.contains(name):
                damaged.remove(name)
                work = {
                    try crowd.mend(name)
                    #expect(try eventually { try crowd.ask(.ping, host: name).status == 200 })
                }
            case 1:
                deleted.insert(name)
                work = { try crowd.carryOut("DELETE", name, "?log=delete") }
            case 2:
                damaged.insert(name)
                work = { try crowd.damage(name) }
            case 3: work = { try crowd.carryOut("POST", name, "/shutdown") }
            default: work = { try crowd.carryOut("POST", name, "/reload") }
            }
            let isDone = Bell()
            let failure = Mutex<(any Error)?>(nil)
            let thread = try BackgroundThread("changing") {
                do { try work() } catch { failure.withLock { $0 = error } }
                isDone.ring()
            }
            while !isDone.rang { try probe(&ground, changing: changing) }
            thread.join()
            if let error = failure.withLock({ $0 }) { throw error }
            (ground.damaged, ground.deleted) = (damaged, deleted)
            for _ in 0..<12 { try probe(&ground, changing: nil) }
        }

        @Test(arguments: seeds(2))
        func `whatever happens to projects, nobody is answered by another`(seed: Seed) throws {
            var random = SeededRandom(seed: seed)
            let standIn: UnknownHosts = seed.number % 2 == 0 ? .main : .single
            let crowd = try ProjectCrowd([(Setting(\.unknownHosts), standIn.rawValue)])
            _ = random.next()
            #expect(try eventually { try crowd.isReady("alpha") && crowd.isReady("beta") })
            var ground = Ground(crowd: crowd, random: random, standIn: standIn)
            for _ in 0..<14 { try step(&ground) }
            // The damaged projects are repaired before the stage ends.
            for name in ground.damaged { try crowd.mend(name) }
            #expect(ground.answers.values.reduce(0, +) > 100)
        }
    }
}

/// Server that accepts connections and never answers.
final class SilentServer: @unchecked Sendable {
    // Guarded by the kernel: the thread that made the server closes its descriptors, once.
    private let listener: Int32
    let port: UInt16
    private let accepted = Mutex<[Int32]>([])
    private let isClosed = Bell()

    init() throws {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        port = try withUnsafeMutablePointer(to: &address) { address in
            try address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                guard bind(listener, address, length) == 0, listen(listener, 64) == 0,
                    getsockname(listener, address, &length) == 0
                else { throw Unexpected(message: "no listener") }
            }
            return UInt16(bigEndian: address.pointee.sin_port)
        }
        self.listener = listener
        let thread = try BackgroundThread("silent") { [self] in
            while !isClosed.rang {
                let descriptor = accept(listener, nil, nil)
                guard descriptor >= 0 else { return }
                accepted.withLock { $0.append(descriptor) }
            }
        }
        _ = thread
    }

    var count: Int { accepted.withLock { $0.count } }

    func close() {
        isClosed.ring()
        shutdown(listener, Int32(SHUT_RDWR))
        for descriptor in accepted.withLock({ $0 }) { Glibc.close(descriptor) }
        Glibc.close(listener)
    }
}
