# SPDX-License-Identifier: Apache-2.0
# conan create packaging/conan: a package of the headers of this checkout. find_package(acco COMPONENTS ...) finds the library's own configuration in it.
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Acco(ConanFile):
    name = "acco"
    description = "Sharded optimizers (ZeRO-1) whose communication is hidden behind computation"
    license = "Apache-2.0"
    topics = ("distributed-training", "optimizer", "zero", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    @property
    def repository(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        numbers = re.findall(r"define ACCO_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", load(self, os.path.join(self.repository, "include/acco/version.hpp")))
        self.version = ".".join(numbers)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", "cmake/*", "compiled/*", "modules/*"):
            copy(self, pattern, src=self.repository, dst=self.export_sources_folder)

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["ACCO_BUILD_TESTS"] = False
        toolchain.cache_variables["ACCO_BUILD_EXAMPLES"] = False
        toolchain.cache_variables["ACCO_BUILD_C"] = False  # compiled: no part of a package of headers
        toolchain.generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.builddirs = ["share/cmake/acco"]
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package brings its own configuration, components included
        if self.settings.os == "Linux":
            self.cpp_info.system_libs = ["pthread"]
